"""Adult and Credit: columns of the kinds stated; a file made by hand that differs is refused, not
misread."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from protoevfl.errors import UserError
from protoevfl.rows import uci
from protoevfl.rows.dataset import Dataset
from protoevfl.rows.table_sources import ADULT_TEXT, CREDIT_CODES, adult, credit

PERSON = "39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,2174,0,40,Cuba"


def write(folder: Path, name: str, header: tuple[str, ...], rows: list[str]) -> Path:
    (folder / name).write_bytes(gzip.compress("\n".join([",".join(header), *rows, ""]).encode()))
    return folder


def people(folder: Path, *rows: str) -> Path:
    return write(folder, "adult.csv.gz", uci.ADULT_COLUMNS, list(rows))


def accounts(folder: Path, rows: int = 10, label: str = "", **changed: str) -> Path:
    """Accounts that default every second time; `changed` replaces a column of the first one."""
    table = []
    for i in range(rows):
        row = {name: str(i) for name in uci.CREDIT_COLUMNS} | {"SEX": str(1 + i % 2)}
        row["default.payment.next.month"] = label or str(i % 2)
        table.append(",".join((row | changed if i == 0 else row).values()))
    return write(folder, "credit.csv.gz", uci.CREDIT_COLUMNS, table)


def column(found: Dataset, name: str) -> list[object]:
    values: list[object] = found.features[name].to_pylist()
    return values


def texts(found: Dataset) -> set[str]:
    return {field.name for field in found.features.schema if str(field.type) == "string"}


def test_adult_is_divided_as_the_file_says(tmp_path: Path) -> None:
    other = PERSON.replace("State-gov", "?")
    found = adult(
        people(tmp_path, f"{PERSON},<=50K,train", f"{other},>50K,test", f"{other},>50K,train")
    )
    assert (found.train.tolist(), found.test.tolist()) == ([0, 2], [1])
    assert found.labels.tolist() == [0, 1, 1]
    assert found.views == 14
    assert texts(found) == ADULT_TEXT
    assert column(found, "workclass") == ["State-gov", None, None]


@pytest.mark.parametrize("name", ["adult", "credit"])
def test_a_header_without_rows_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, "adult.csv.gz", uci.ADULT_COLUMNS, [])
    write(tmp_path, "credit.csv.gz", uci.CREDIT_COLUMNS, [])
    with pytest.raises(UserError, match=rf"{name}\.csv\.gz.*no rows.*fetch it again"):
        (adult if name == "adult" else credit)(tmp_path)


@pytest.mark.parametrize("income", [">50K.", " >50K", "", "1"])
def test_an_income_spelled_otherwise_is_refused_rather_than_taken_as_low(
    tmp_path: Path, income: str
) -> None:
    people(tmp_path, f"{PERSON},<=50K,train", f"{PERSON},{income},test")
    with pytest.raises(
        UserError, match=rf"adult\.csv\.gz: column 'income' holds '{income}'.*<=50K, >50K.*fetch it"
    ):
        adult(tmp_path)


def test_a_split_that_is_neither_train_nor_test_is_refused(tmp_path: Path) -> None:
    people(tmp_path, f"{PERSON},<=50K,train", f"{PERSON},>50K,Test")
    with pytest.raises(UserError, match=r"column 'split' holds 'Test'.*train, test"):
        adult(tmp_path)


def test_rows_of_one_split_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"adult\.csv\.gz.*no train rows"):
        adult(people(tmp_path, f"{PERSON},<=50K,test"))


def test_a_text_among_numbers_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"column 'age' must hold numbers.*'old'"):
        adult(people(tmp_path, f"{PERSON.replace('39', 'old', 1)},<=50K,train"))


@pytest.mark.parametrize(
    "row",
    ["", "1,2,3", f"{PERSON},<=50K,train,more"],
    ids=["blank line", "too few values", "too many values"],
)
def test_a_line_of_another_length_is_refused(tmp_path: Path, row: str) -> None:
    with pytest.raises(
        UserError, match=r"must have the columns age, workclass, .*; fetch it again"
    ):
        adult(people(tmp_path, f"{PERSON},<=50K,train", row))


def test_credit_has_codes_amounts_and_no_id(tmp_path: Path) -> None:
    found = credit(accounts(tmp_path))
    assert "ID" not in found.features.column_names
    assert texts(found) == CREDIT_CODES
    assert found.labels.tolist() == [0, 1] * 5


def test_credit_holds_out_the_same_fifth_of_each_class_every_time(tmp_path: Path) -> None:
    accounts(tmp_path, 50)
    one, other = credit(tmp_path), credit(tmp_path)
    assert one.test.tolist() == other.test.tolist()
    assert one.labels[one.test].bincount().tolist() == [5, 5]
    assert np.intersect1d(one.train.numpy(), one.test.numpy()).size == 0


@pytest.mark.parametrize("label", ["x", "1.0", "2", "-1", "?"])
def test_a_label_that_is_neither_0_nor_1_is_refused(tmp_path: Path, label: str) -> None:
    with pytest.raises(UserError, match=r"default\.payment\.next\.month.*fetch it again"):
        credit(accounts(tmp_path, label=label))


@pytest.mark.usefixtures("nothing_elsewhere")
def test_absent_files_say_where_they_come_from(tmp_path: Path) -> None:
    for load in (adult, credit):
        with pytest.raises(
            UserError, match=r"not found.*archive\.ics\.uci\.edu.*set PROTOEVFL_DATA"
        ):
            load(tmp_path)
