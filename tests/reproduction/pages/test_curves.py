"""Curves: one line a method, points in the order of their cost."""

import numpy as np

from protoevfl.bench.world import RunConfig
from protoevfl.reproduction.pages import curves
from protoevfl.reproduction.spec import Cell
from tests.reproduction import fake


def pairs(*lengths: int) -> list[tuple[Cell, list[dict[str, object]]]]:
    made = []
    for method, name in (("vanilla", "epochs"), ("proto_evfl", "rounds.count")):
        for n in lengths:
            config = RunConfig(dataset="mine", method=method, overrides={name: n})
            tags = {"dataset": "mine", "method": method, "length": str(n)}
            made.append((Cell(tags, config), [fake.record(config, seed) for seed in (0, 1)]))
    return made


def test_points_are_sorted_by_megabytes_and_each_method_is_named() -> None:
    (picture,) = curves.accuracy_bytes(pairs(10, 2, 5))
    (ax,) = picture.figure.axes
    assert ax.get_xscale() == "log"
    lines = [line.get_xdata() for line in ax.get_lines() if len(line.get_xdata()) == 3]
    assert len(lines) >= 2
    assert all(np.all(np.diff(x) > 0) for x in lines)
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {"vanilla", "proto_evfl"}


def test_exchanges_have_a_picture_of_their_own() -> None:
    assert curves.accuracy_rounds(pairs(2))[0].slug != curves.accuracy_bytes(pairs(2))[0].slug


def test_nothing_recorded_is_no_picture() -> None:
    for draw in (curves.accuracy_bytes, curves.accuracy_rounds, curves.losses, curves.gradients):
        assert draw([]) == []


def test_a_type_that_a_run_lacks_counts_as_nothing_there() -> None:
    runs = [
        {"bytes": {"by_type": {"Embeddings": {"up": 10, "down": 2}}}},
        {"bytes": {"by_type": {}}},
        {},
        {},
    ]
    assert curves.by_type(runs) == {"Embeddings": (2.5, 0.5)}
    assert curves.by_type([]) == {}


def test_every_type_is_named_and_the_longest_run_is_shown() -> None:
    pairs = []
    for n in (2, 10, 5):
        config = RunConfig(dataset="mine", method="vanilla", overrides={"epochs": n})
        pairs.append(
            (
                Cell({"dataset": "mine", "method": "vanilla", "length": str(n)}, config),
                [fake.record(config, 0)],
            )
        )
    (picture,) = curves.messages(pairs)
    (ax,) = picture.figure.axes
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {"Embeddings", "BackwardBatch"}
    drawn = {float(x) for points in ax.collections for x, _ in points.get_offsets().filled(0.0)} - {
        0.0
    }
    assert drawn == {float(sum(way)) for way in curves.by_type(pairs[1][1]).values()}


def test_records_without_bytes_are_no_picture() -> None:
    assert curves.messages([]) == []
    assert (
        curves.messages(
            [(Cell({"dataset": "mine", "method": "vanilla"}, RunConfig()), [{"seed": 0}])]
        )
        == []
    )
