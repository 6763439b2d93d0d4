"""Adult and Credit: columns of the kinds stated; a file made by hand that differs is refused, not
misread."""

import gzip
import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from protoevfl.errors import UserError
from protoevfl.rows import fetch, table_sources
from protoevfl.rows.dataset import Dataset
from protoevfl.rows.table_sources import ADULT_TEXT, CREDIT_CODES, adult, credit

from .real import requires

PERSON = "39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,2174,0,40,Cuba"


def write(folder: Path, name: str, header: tuple[str, ...], rows: list[str]) -> Path:
    (folder / name).write_bytes(gzip.compress("\n".join([",".join(header), *rows, ""]).encode()))
    return folder


def people(folder: Path, *rows: str) -> Path:
    return write(folder, "adult.csv.gz", table_sources.ADULT_COLUMNS, list(rows))


def accounts(folder: Path, rows: int = 10, label: str = "", **changed: str) -> Path:
    """Accounts that default every second time; `changed` replaces a column of the first one."""
    table = []
    for i in range(rows):
        row = {name: str(i) for name in table_sources.CREDIT_COLUMNS} | {"SEX": str(1 + i % 2)}
        row["default.payment.next.month"] = label or str(i % 2)
        table.append(",".join((row | changed if i == 0 else row).values()))
    return write(folder, "credit.csv.gz", table_sources.CREDIT_COLUMNS, table)


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
    write(tmp_path, "adult.csv.gz", table_sources.ADULT_COLUMNS, [])
    write(tmp_path, "credit.csv.gz", table_sources.CREDIT_COLUMNS, [])
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


TRAIN = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K"
TEST = (
    "25, Private, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Male, 0, 0, 38, ?, >50K."
)


def archive(**members: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        for name, text in members.items():
            files.writestr(name.replace("_", "."), text)
    return packed.getvalue()


def test_adult_rows_of_both_files() -> None:
    text = table_sources._adult_csv(
        archive(adult_data=TRAIN + "\n\n", adult_test="|1x3 Cross validator\n" + TEST + "\n\n")
    ).decode()
    header, train, test = text.splitlines()
    assert header == ",".join(table_sources.ADULT_COLUMNS)
    assert train == TRAIN.replace(", ", ",") + ",train"
    assert test == TEST.replace(", ", ",").removesuffix(".") + ",test"


def test_adult_archive_without_the_files_is_refused() -> None:
    with pytest.raises(ValueError, match=r"adult\.test"):
        table_sources._adult_csv(archive(adult_data=TRAIN))


def test_credit_columns_get_their_names() -> None:
    names = ["ID", *(f"X{i}" for i in range(1, 24)), "Y"]
    text = table_sources._credit_csv(
        (",".join(names) + "\r\n" + ",".join(["1", "20000.0", *["-2"] * 22, "1"])).encode()
    )
    header, row = text.decode().splitlines()
    assert header.split(",")[:3] == ["ID", "LIMIT_BAL", "SEX"]
    assert row == ",".join(["1", "20000", *["-2"] * 22, "1"])


def test_credit_with_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 25 columns"):
        table_sources._credit_csv(b"a,b\n1,2\n")


@requires("adult")
def test_adult_sha256_is_that_of_the_converted_official_files() -> None:
    """The stored file turned back into the two official ones converts to the expected content."""
    path = fetch.find(table_sources.ADULT.file)
    assert path is not None
    rows = [
        line.rsplit(",", 1) for line in gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    ]
    official = {
        part: [row.replace(",", ", ") for row, split in rows if split == part]
        for part in ("train", "test")
    }
    content = table_sources._adult_csv(
        archive(
            adult_data="\n".join(official["train"]) + "\n\n",
            adult_test="|1x3 Cross validator\n"
            + "\n".join(row + "." for row in official["test"])
            + "\n\n",
        )
    )
    assert hashlib.sha256(content).hexdigest() == table_sources.ADULT.sha256


@requires("credit")
def test_credit_sha256_is_that_of_the_converted_official_file() -> None:
    path = fetch.find(table_sources.CREDIT.file)
    assert path is not None
    body = gzip.decompress(path.read_bytes()).decode().split("\n", 1)[1]
    header = ",".join(["ID", *(f"X{i}" for i in range(1, 24)), "Y"])
    content = table_sources._credit_csv((header + "\n" + body).encode())
    assert hashlib.sha256(content).hexdigest() == table_sources.CREDIT.sha256
