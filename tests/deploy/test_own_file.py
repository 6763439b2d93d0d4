"""A party's own file: which columns are used, which rows go where, and what is said of a column that is not there."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch

from protoevfl.deploy.own_file import OwnFile, only
from protoevfl.errors import UserError

ROWS = 12
INCOME = [float(i) for i in range(ROWS)]
LABELS = ["no", "yes", None, "no", "yes", None, "no", "yes", "no", "yes", "no", "yes"]
COLUMNS: dict[str, Any] = {
    "customer": [f"{i:05d}" for i in range(ROWS)],
    "income": INCOME,
    "age": [20 + (7 * i) % ROWS for i in range(ROWS)],
    "branch": ["north", "south", "east"] * 4,
    "default": LABELS,
}
FACTS = {"file": "bank.csv", "id": "customer", "label": "default"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pacsv.write_csv(pa.table(COLUMNS), tmp_path / "bank.csv")
    new = pa.table({"customer": ["00100", "00101"], "income": [100.0, 3.0], "age": [21, 22], "branch": ["north"] * 2})
    pq.write_table(new, tmp_path / "new.parquet")
    return tmp_path


def read(folder: Path, **changes: Any) -> OwnFile:
    return OwnFile.read({**FACTS, **changes}, folder)


def rows(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def incomes(part: torch.Tensor) -> list[float]:
    """The one column, up to its scale: its order is that of the incomes."""
    return part[:, 0].tolist()


# ------------------------------------------------------------ columns


def test_without_a_list_all_columns_but_id_label_and_the_excluded_are_features(folder: Path) -> None:
    assert read(folder).spec.features == ("income", "age", "branch")
    assert read(folder, exclude=["age"]).spec.features == ("income", "branch")
    assert read(folder, id=["customer", "branch"]).spec.features == ("income", "age")
    assert read(folder, features=["branch", "income"]).spec.features == ("branch", "income")


@pytest.mark.parametrize("column", ["customer", "default", "age"])
def test_id_label_and_excluded_columns_are_never_features(folder: Path, column: str) -> None:
    with pytest.raises(UserError, match="features must be columns other than the id and the label"):
        read(folder, features=["income", column], exclude=["age"])


@pytest.mark.parametrize("kind", ["categorical", "numeric"])
def test_a_column_read_in_a_certain_way_must_be_a_feature_and_in_one_way_only(folder: Path, kind: str) -> None:
    with pytest.raises(UserError, match=r"party\.toml: 'brunch' is not one of the features; did you mean 'branch'"):
        read(folder, **{kind: ["brunch"]})
    with pytest.raises(UserError, match="'age' is listed as categorical and as numeric"):
        read(folder, categorical=["age"], numeric=["age"])


def test_a_file_of_nothing_but_ids_and_labels_has_no_features(folder: Path) -> None:
    with pytest.raises(UserError, match="at least one"):
        read(folder, exclude=["income", "age", "branch"])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"id": "costumer"}, r"bank\.csv has no column 'costumer' \(did you mean 'customer'\?\); its columns are"),
        ({"label": "defualt"}, "no column 'defualt'.*did you mean 'default'"),
        ({"exclude": ["name"]}, "no column 'name'"),
        ({"features": ["incom"]}, "no column 'incom'.*did you mean 'income'"),
        ({"file": "bnak.csv"}, r"bnak\.csv does not exist; did you mean 'bank\.csv'"),
        ({"lable": "default"}, r"party\.toml has no key 'lable'; did you mean 'label'"),
        ({"on_bad_ids": "keep"}, "on_bad_ids = 'keep' is unknown"),
        ({"pool": -1}, "pool must be a whole number from 0"),
    ],
)
def test_mistakes_name_the_file_and_the_column(folder: Path, change: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        read(folder, **change)


def test_the_file_lies_in_the_kits_folder_and_the_defaults_are_careful(folder: Path) -> None:
    found = read(folder)
    assert found.path == folder / "bank.csv"
    assert (found.on_bad, found.minimum, found.pool, found.predict) == ("refuse", 50, 100_000, None)


# ------------------------------------------------------------ ids and labels


def test_ids_keep_their_leading_zeros_in_a_csv_file(folder: Path) -> None:
    assert read(folder).ids().values == COLUMNS["customer"]


def test_bad_ids_are_refused_or_dropped_as_the_party_says(folder: Path) -> None:
    twice = {**COLUMNS, "customer": ["7", "7", None, *COLUMNS["customer"][3:]]}
    pq.write_table(pa.table(twice), folder / "twice.parquet")
    with pytest.raises(UserError, match=r"twice\.parquet: 1 rows have no id \(row 3\)"):
        read(folder, file="twice.parquet").ids()
    kept = read(folder, file="twice.parquet", on_bad_ids="drop").ids()
    assert kept.rows.tolist() == list(range(3, ROWS))


def test_rows_without_a_label_are_told_apart_from_those_with_one(folder: Path) -> None:
    file = read(folder)
    labels, classes = file.labels()
    assert classes == ("no", "yes")
    assert labels.tolist() == [{"no": 0, "yes": 1, None: -1}[label] for label in LABELS]
    known, unknown = file.labelled_ids(True), file.labelled_ids(False)
    assert unknown.values == ["00002", "00005"]
    assert unknown.rows.tolist() == [2, 5]
    assert sorted(known.values + unknown.values) == COLUMNS["customer"]


def test_labels_are_found_at_their_rows_when_ids_before_them_were_dropped(folder: Path) -> None:
    twice = {**COLUMNS, "customer": ["7", "7", *COLUMNS["customer"][2:]]}
    pq.write_table(pa.table(twice), folder / "twice.parquet")
    file = read(folder, file="twice.parquet", on_bad_ids="drop")
    assert file.labelled_ids(False).values == ["00002", "00005"]


def test_the_classes_can_be_named_and_a_label_outside_them_is_an_error(folder: Path) -> None:
    assert read(folder, classes=["yes", "no", "maybe"]).labels()[1] == ("yes", "no", "maybe")
    with pytest.raises(UserError, match=r"bank\.csv column 'default' holds 'no', which is not among the classes"):
        read(folder, classes=["yes", "never"]).labels()


def test_a_party_without_labels_says_what_is_missing(folder: Path) -> None:
    facts = {name: value for name, value in FACTS.items() if name != "label"}
    with pytest.raises(UserError, match="label = "):
        OwnFile.read({**facts, "exclude": ["default"]}, folder).labels()


def test_only_keeps_the_wanted_rows_of_the_file(folder: Path) -> None:
    ids = read(folder).ids()
    wanted = np.zeros(ROWS, np.bool_)
    wanted[[4, 1]] = True
    kept = only(ids, wanted)
    assert (kept.values, kept.rows.tolist()) == (["00001", "00004"], [1, 4])
    assert kept.rules == ids.rules


# ------------------------------------------------------------ the table of a run


def test_every_row_of_the_file_has_one_place(folder: Path) -> None:
    table = read(folder, features="income").table("bank", rows(9, 3), rows(5, 2), False, seed=0)
    assert table.aligned[0, 0] > table.aligned[1, 0]  # the common order, not the file's
    assert table.query[0, 0] > table.query[1, 0]
    every = incomes(table.pool) + incomes(table.aligned) + incomes(table.query)
    assert len(set(every)) == len(every) == ROWS
    assert sorted(incomes(table.pool)) == incomes(table.pool)


def test_rows_to_predict_teach_the_encoder_nothing(folder: Path) -> None:
    """A value as large as one likes in a row to be predicted leaves the other rows as they are."""
    far = {**COLUMNS, "income": [*INCOME[:-1], 1e9]}
    pacsv.write_csv(pa.table(far), folder / "far.csv")
    near = read(folder, features="income").table("bank", rows(0, 1), rows(ROWS - 1), False, seed=0)
    wide = read(folder, features="income", file="far.csv").table("bank", rows(0, 1), rows(ROWS - 1), False, seed=0)
    assert torch.equal(near.pool, wide.pool)
    assert torch.equal(near.aligned, wide.aligned)
    assert not torch.equal(near.query, wide.query)


def test_a_large_pool_is_cut_to_a_sample_that_the_seed_decides(folder: Path) -> None:
    def pool(seed: int, most: int = 4) -> list[float]:
        return incomes(read(folder, features="income", pool=most).table("b", rows(0), rows(1), False, seed).pool)

    every = pool(0, 100)
    assert len(every) == ROWS - 2
    assert len(pool(0)) == 4
    assert pool(0) == sorted(pool(0))
    assert set(pool(0)) < set(every)
    assert pool(0) == pool(0)
    assert len({tuple(pool(seed)) for seed in range(5)}) > 1


def test_without_rows_of_its_own_a_party_learns_from_the_aligned_ones(folder: Path) -> None:
    file, every = read(folder, features="income"), rows(*range(ROWS))
    table = file.table("bank", every, rows(), False, seed=0)
    assert torch.equal(table.pool, table.aligned)
    none = read(folder, features="income", pool=0).table("bank", rows(3, 4), rows(), False, seed=0)
    assert torch.equal(none.pool, none.aligned)


def test_new_rows_come_from_their_own_file_by_the_code_of_the_training_file(folder: Path) -> None:
    file = read(folder, predict_file="new.parquet", exclude=["age", "branch"])
    assert file.predict is not None
    assert file.ids(file.predict).values == ["00100", "00101"]
    table = file.table("bank", rows(3, 4), rows(1, 0), True, seed=0)
    assert table.query[0, 0] == table.aligned[0, 0]  # both have an income of 3
    assert table.query[1, 0] > table.pool.max()
    assert len(table.pool) == ROWS - 2  # nothing of the training file is held back


def test_new_rows_without_a_file_or_a_column_say_so(folder: Path) -> None:
    with pytest.raises(UserError, match="predict_file = "):
        read(folder).table("bank", rows(0), rows(0), True, seed=0)
    pq.write_table(pa.table({"customer": ["1"], "income": [1.0], "branch": ["north"]}), folder / "short.parquet")
    with pytest.raises(UserError, match=r"short\.parquet has no column 'age'"):
        read(folder, predict_file="short.parquet").table("bank", rows(0), rows(0), True, seed=0)


def test_a_category_stays_one_column_of_the_party(folder: Path) -> None:
    table = read(folder, features=["income", "branch"]).table("bank", rows(0, 1), rows(2), False, seed=0)
    assert table.spans is not None
    assert len(table.spans) == 2
    start, end = table.spans[1]
    assert torch.equal(table.aligned[:, start:end].sum(1), torch.ones(2))
