"""Adult and Credit: columns of numbers and categories as they come; encoding happens at the party
(features.py). And scikit-learn's digits with a column per pixel: a table of ten classes.

The first two are stored as CSV made of the official UCI files without changing a value, so the result is
known by its sha256. `adult.csv`: the rows of adult.data (split = train), then those of adult.test
(split = test); spaces after commas and the full stop after test labels removed. `credit.csv`: UCI's
data.csv (ID, X1 to X23, Y) under its usual column names, all values whole numbers.
"""

import csv
import gzip
import io
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from protoevfl.errors import UserError
from protoevfl.rows import fetch
from protoevfl.rows.dataset import Array, Dataset, held_out

ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income", "split"),
)
CREDIT_COLUMNS = (
    *("ID", "LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
    *("PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
    "default.payment.next.month",
)
LARGEST_MEMBER = 64 * 2**20  # bytes


def _adult_csv(archive: bytes) -> bytes:
    """adult.zip -> the content of adult.csv."""
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        train, test = (_member(files, name) for name in ("adult.data", "adult.test"))
    lines = [",".join(ADULT_COLUMNS)]
    for text, split in ((train, "train"), (test, "test")):
        lines += [f"{row},{split}" for row in map(_adult_row, text.splitlines()) if row]
    return ("\n".join(lines) + "\n").encode()


def _member(files: zipfile.ZipFile, name: str) -> str:
    if name not in files.namelist() or files.getinfo(name).file_size > LARGEST_MEMBER:
        raise ValueError(f"the archive has no usable {name}")
    return files.read(name).decode("ascii")


def _adult_row(line: str) -> str:
    """One row without the spaces after commas and the full stop of test labels; '' for comments and
    blanks."""
    if not line.strip() or line.startswith("|"):
        return ""
    return ",".join(value.strip() for value in line.rstrip().removesuffix(".").split(","))


def _credit_csv(table: bytes) -> bytes:
    """UCI's data.csv (ID, X1..X23, Y) -> the content of credit.csv."""
    rows = csv.reader(io.StringIO(table.decode("utf-8-sig")))
    header = next(rows, [])
    if len(header) != len(CREDIT_COLUMNS):
        raise ValueError(f"expected {len(CREDIT_COLUMNS)} columns, got {len(header)}")
    lines = [",".join(CREDIT_COLUMNS)]
    lines += [",".join(str(int(float(value))) for value in row) for row in rows if row]
    return ("\n".join(lines) + "\n").encode()


ADULT = fetch.Remote(
    file="adult.csv.gz",
    urls=("https://archive.ics.uci.edu/static/public/2/adult.zip",),
    sha256="d99d5b2c07ff6c7e09b6e0cefe115f6835d5c7b6efebdb9276238f1243c6369b",
    unpack=_adult_csv,
    advice="It is made from adult.zip of https://archive.ics.uci.edu/dataset/2/adult: run once "
    "where that site can be reached, or put the file into a folder and set PROTOEVFL_DATA to it",
)
CREDIT = fetch.Remote(
    file="credit.csv.gz",
    urls=("https://archive.ics.uci.edu/static/public/350/data.csv",),
    sha256="f7b7d22d1f8dd27dadb25d4b78d8a4ae7c441ab6cc12d1ea58c0efc54d4d1788",
    unpack=_credit_csv,
    advice="It is made from https://archive.ics.uci.edu/dataset/350: run once where that site can "
    "be reached, or put the file into a folder and set PROTOEVFL_DATA to it",
)
ADULT_TEXT = {
    *("workclass", "education", "marital-status", "occupation", "relationship", "race", "sex"),
    "native-country",
}
INCOMES = ("<=50K", ">50K")
CREDIT_CODES = {"SEX", "EDUCATION", "MARRIAGE"}
CREDIT_LABEL = CREDIT_COLUMNS[-1]


def _read_table(path: Path, header: Sequence[str]) -> dict[str, list[str]]:
    try:
        with gzip.open(path, "rt", newline="") as file:
            rows = list(csv.reader(file))
    except (*fetch.UNREADABLE, csv.Error) as error:
        raise UserError(f"{path} cannot be read ({error}); fetch it again") from error
    if not rows or tuple(rows[0]) != tuple(header) or any(len(row) != len(header) for row in rows):
        raise UserError(f"{path} must have the columns {', '.join(header)}; fetch it again")
    if len(rows) < 2:
        raise UserError(f"{path} has a header and no rows; fetch it again")
    return {
        name: list(values) for name, values in zip(header, zip(*rows[1:], strict=True), strict=True)
    }


def _category(text: list[str]) -> Any:
    """Texts as they come; `?` is a missing value."""
    return pa.array([None if value == "?" else value for value in text], pa.string())


def _codes(path: Path, name: str, text: list[str], known: Sequence[str]) -> Array:
    """(n,) which of the known values each row holds; the labels depend on it, so nothing else is
    let in."""
    code = {value: i for i, value in enumerate(known)}
    if wrong := [value for value in text if value not in code]:
        raise UserError(
            f"{path}: column '{name}' holds '{wrong[0]}', not one of {', '.join(known)}; fetch it "
            "again"
        )
    return np.array([code[value] for value in text], dtype=np.int64)


def _number(name: str, text: list[str]) -> Any:
    try:
        return pa.array(np.array(text, dtype=np.float64))
    except ValueError as error:
        raise UserError(
            f"column '{name}' must hold numbers ({error}); fetch the file again"
        ) from error


def _columns(table: Mapping[str, list[str]], categories: Collection[str]) -> Any:
    return pa.table(
        {
            name: _category(text) if name in categories else _number(name, text)
            for name, text in table.items()
        }
    )


def adult(root: str | Path | None) -> Dataset:
    path = fetch.obtain(ADULT, root)
    table = _read_table(path, ADULT_COLUMNS)
    is_test = _codes(path, "split", table.pop("split"), ("train", "test")) == 1
    labels = _codes(path, "income", table.pop("income"), INCOMES)
    train = torch.from_numpy(np.flatnonzero(~is_test))
    test = torch.from_numpy(np.flatnonzero(is_test))
    if not len(train):
        raise UserError(f"{path} has no train rows; fetch it again")
    columns = _columns(table, ADULT_TEXT)
    return Dataset("adult", INCOMES, columns, torch.from_numpy(labels), train, test)


def credit(root: str | Path | None) -> Dataset:
    path = fetch.obtain(CREDIT, root)
    table = _read_table(path, CREDIT_COLUMNS)
    table.pop("ID")
    labels = _codes(path, CREDIT_LABEL, table.pop(CREDIT_LABEL), ("0", "1"))
    train, test = held_out(labels, 0.2)
    columns = _columns(table, CREDIT_CODES)
    return Dataset("credit", ("pays", "defaults"), columns, torch.from_numpy(labels), train, test)


def digits_table(root: str | Path | None) -> Dataset:
    """The rows of `digits`, line by line of the picture: no column knows its neighbours."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    labels = bunch.target.astype(np.int64)
    columns = pa.table(dict(zip(bunch.feature_names, bunch.data.T, strict=True)))
    train, test = held_out(labels, 0.3)
    names = tuple("0123456789")
    return Dataset("digits_table", names, columns, torch.from_numpy(labels), train, test)
