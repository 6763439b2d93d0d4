"""A party's own files: which columns are used, what is said of one that is not there, and new
rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch

from protoevfl.artifacts.party import StoredParty
from protoevfl.deploy import probe
from protoevfl.deploy.own_file import NewRows, OwnFile
from protoevfl.errors import UserError
from protoevfl.pipeline.prepare import read_labels
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.rows.encoders import fit_encoder
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.ids import IdRules

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
    new = pa.table(
        {
            "customer": ["00100", "00101"],
            "income": [100.0, 3.0],
            "age": [21, 22],
            "branch": ["north"] * 2,
        }
    )
    pq.write_table(new, tmp_path / "new.parquet")
    return tmp_path


def read(folder: Path, **changes: Any) -> OwnFile:
    return OwnFile.read({**FACTS, **changes}, "bank", folder)


# ------------------------------------------------------------ columns


def test_without_a_list_all_columns_but_id_label_and_the_excluded_are_features(
    folder: Path,
) -> None:
    assert read(folder).file.spec.features == ("income", "age", "branch")
    assert read(folder, exclude=["age"]).file.spec.features == ("income", "branch")
    assert read(folder, id=["customer", "branch"]).file.spec.features == ("income", "age")
    assert read(folder, features=["branch", "income"]).file.spec.features == ("branch", "income")


@pytest.mark.parametrize("column", ["customer", "default"])
def test_id_and_label_columns_are_never_features(folder: Path, column: str) -> None:
    with pytest.raises(
        UserError, match=f"bank: '{column}' is an id, label or image column and cannot be a feature"
    ):
        read(folder, features=["income", column])


def test_columns_are_named_or_excluded_not_both(folder: Path) -> None:
    with pytest.raises(UserError, match="exclude goes with features"):
        read(folder, features=["income"], exclude=["age"])


@pytest.mark.parametrize("kind", ["categorical", "numeric"])
def test_a_column_read_in_a_certain_way_must_be_a_feature_and_in_one_way_only(
    folder: Path, kind: str
) -> None:
    with pytest.raises(
        UserError, match=r"bank: 'brunch' is not one of the features; did you mean 'branch'"
    ):
        read(folder, **{kind: ["brunch"]})
    with pytest.raises(UserError, match="'age' is listed as categorical and as numeric"):
        read(folder, categorical=["age"], numeric=["age"])


def test_a_file_of_nothing_but_ids_and_labels_has_no_features(folder: Path) -> None:
    with pytest.raises(UserError, match="bank has no feature columns left"):
        read(folder, exclude=["income", "age", "branch"])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (
            {"id": "costumer"},
            r"bank\.csv has no column 'costumer' \(did you mean 'customer'\?\); its columns are",
        ),
        ({"label": "defualt"}, "no column 'defualt'.*did you mean 'default'"),
        ({"exclude": ["name"]}, "no column 'name'"),
        ({"features": ["incom"]}, "no column 'incom'.*did you mean 'income'"),
        ({"file": "bnak.csv"}, r"bnak\.csv does not exist; did you mean 'bank\.csv'"),
        ({"lable": "default"}, r"party\.toml has no key 'lable'; did you mean 'label'"),
        ({"on_bad_ids": "keep"}, "on_bad_ids = 'keep' is unknown"),
        ({"pool": -1}, "pool must be a whole number from 0"),
        ({"test": 1}, "test must be a number"),
        ({"minimum": 0}, "minimum must be"),
    ],
)
def test_mistakes_name_the_file_and_the_column(
    folder: Path, change: dict[str, Any], word: str
) -> None:
    with pytest.raises(UserError, match=word):
        read(folder, **change)


def test_the_file_lies_in_the_kits_folder_and_the_defaults_are_careful(folder: Path) -> None:
    found = read(folder)
    assert found.file.info.path == folder / "bank.csv"
    config = found.config
    assert (config.on_bad_ids, config.minimum, config.pool, config.predict_file) == (
        "refuse",
        50,
        100_000,
        None,
    )
    assert config.test == 0.2


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


def test_the_classes_can_be_named_and_a_label_outside_them_is_an_error(folder: Path) -> None:
    named = read(folder, classes=["yes", "no", "maybe"])
    assert read_labels(named.label, named.file)[1] == ("yes", "no", "maybe")
    wrong = read(folder, classes=["yes", "never"])
    with pytest.raises(
        UserError, match=r"bank\.csv column 'default' holds 'no', which is not among the classes"
    ):
        read_labels(wrong.label, wrong.file)


def test_a_party_without_labels_says_what_is_missing(folder: Path) -> None:
    facts = {name: value for name, value in FACTS.items() if name != "label"}
    with pytest.raises(UserError, match="label = "):
        _ = OwnFile.read({**facts, "exclude": ["default"]}, "bank", folder).label


# ------------------------------------------------------------ new rows


@pytest.fixture
def trained(folder: Path) -> StoredParty:
    """A party whose encoder knows income and age; the network does not matter here."""
    file = read(folder, exclude=["branch"])
    spec = file.file.spec
    encoder = fit_encoder(folder / "bank.csv", spec, None, np.ones(ROWS, np.bool_))
    rules = IdRules(False, 1)
    return StoredParty(
        "bank",
        0,
        ("customer",),
        rules,
        "refuse",
        encoder,
        probe.make({}),
        PrivacySettings(),
        "float32",
        {},
    )


def test_new_rows_need_the_encoder_and_not_the_training_file(
    folder: Path, trained: StoredParty
) -> None:
    (folder / "bank.csv").unlink()
    new = NewRows.read({**FACTS, "predict_file": "new.parquet"}, folder, trained)
    assert new.ids().values == ["00100", "00101"]
    first, second = new.encoded(np.array([1, 0])), new.encoded(np.array([0, 1]))
    assert torch.equal(first, second.flip(0))
    assert first[1, 0] > first[0, 0]  # incomes of 100 and 3
    assert new.minimum == 0


def test_new_rows_without_a_file_or_a_column_say_so(folder: Path, trained: StoredParty) -> None:
    with pytest.raises(UserError, match="predict_file = "):
        NewRows.read(FACTS, folder, trained)
    pq.write_table(pa.table({"customer": ["1"], "income": [1.0]}), folder / "short.parquet")
    with pytest.raises(UserError, match=r"short\.parquet has no column 'age'"):
        NewRows.read({**FACTS, "predict_file": "short.parquet"}, folder, trained)


def test_decimal_and_dates_of_party_toml_decide_what_the_values_leave_open(folder: Path) -> None:
    texts = {**COLUMNS, "income": [f"1,{100 + 7 * i}" for i in range(ROWS)]}
    texts["paid"] = [f"0{1 + i % 9}/02/2020" for i in range(ROWS)]
    pacsv.write_csv(pa.table(texts), folder / "bank.csv")
    for decimal, dates, income in (("comma", "month_first", 1.1), ("point", "day_first", 1100)):
        facts = {**FACTS, "decimal": decimal, "dates": dates}
        own = OwnFile.read(facts, "bank", folder).file
        encoder = fit_encoder(own.info.path, own.spec, None)
        assert isinstance(encoder, TableEncoder)
        assert encoder.readings["paid"].order == dates
        assert encoder.readings["income"].decimal == decimal
        assert encoder.codes[0].median == pytest.approx(income, rel=0.05)  # type: ignore[union-attr]
    with pytest.raises(UserError, match="decimal"):
        OwnFile.read({**FACTS, "decimal": "semicolon"}, "bank", folder)
