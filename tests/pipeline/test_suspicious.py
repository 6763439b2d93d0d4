"""Columns that give the label away and ids that count rows are suspected; honest ones are not."""

import numpy as np

from protoevfl.pipeline.suspicious import are_row_numbers, giving_away, rows_to_look_at
from protoevfl.rows.ids import IdRules, collect


def test_a_copy_of_the_label_is_found_and_a_good_column_is_not() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    good = labels + rng.normal(0, 0.7, 300)
    copy = np.array([5.0, -1.0, 2.0])[labels]
    x = np.stack([good, copy, rng.normal(size=300)], 1).astype(np.float32)
    found = giving_away(x, labels, {"good": (0, 1), "copy": (1, 2), "noise": (2, 3)})
    assert list(found) == ["copy"]
    assert found["copy"] == 1.0


def test_few_rows_and_one_class_are_not_judged() -> None:
    x = np.arange(10, dtype=np.float32)[:, None]
    assert giving_away(x, np.arange(10) // 5, {"x": (0, 1)}) == {}
    x = np.arange(40, dtype=np.float32)[:, None]
    assert giving_away(x, np.zeros(40, np.int64), {"x": (0, 1)}) == {}


def test_the_rows_looked_at_are_labelled_and_bounded() -> None:
    labels = np.where(np.arange(50_000) % 2, 1, -1)
    rows = rows_to_look_at(labels, 10)
    assert len(rows) == 2000
    assert (labels[rows] == 1).all()
    assert len(rows_to_look_at(labels, 100_000)) == 300


def test_row_numbers() -> None:
    def ids(values: list[object]) -> bool:
        return are_row_numbers(collect([values], IdRules(), "f"))

    assert ids(list(range(50)))
    assert ids([str(i) for i in range(1, 51)])
    assert not ids([str(i) for i in range(100, 150)])
    assert not ids(list(range(50))[::-1])
    assert not ids([0, 1, 2])
