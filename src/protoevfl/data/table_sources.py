"""Adult and Credit: columns of numbers and categories as they come; scaling happens at the party (`encode.py`)."""

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from protoevfl.data import fetch, uci
from protoevfl.data.dataset import Column, Dataset, held_out
from protoevfl.errors import UserError

ADULT = fetch.Remote(
    file="adult.csv.gz",
    urls=("https://archive.ics.uci.edu/static/public/2/adult.zip",),
    sha256="d99d5b2c07ff6c7e09b6e0cefe115f6835d5c7b6efebdb9276238f1243c6369b",
    unpack=uci.adult_csv,
    advice="It is made from adult.zip of https://archive.ics.uci.edu/dataset/2/adult: "
    "run once where that site can be reached, or put the file into a folder and set PROTOEVFL_DATA to it",
)
CREDIT = fetch.Remote(
    file="credit.csv.gz",
    urls=("https://archive.ics.uci.edu/static/public/350/data.csv",),
    sha256="f7b7d22d1f8dd27dadb25d4b78d8a4ae7c441ab6cc12d1ea58c0efc54d4d1788",
    unpack=uci.credit_csv,
    advice="It is made from https://archive.ics.uci.edu/dataset/350: "
    "run once where that site can be reached, or put the file into a folder and set PROTOEVFL_DATA to it",
)
ADULT_TEXT = frozenset(
    {"workclass", "education", "marital-status", "occupation", "relationship", "race", "sex", "native-country"}
)
CREDIT_CODES = frozenset({"SEX", "EDUCATION", "MARRIAGE"})


def _read_table(path: Path, header: Sequence[str]) -> dict[str, list[str]]:
    try:
        with gzip.open(path, "rt", newline="") as file:
            rows = list(csv.reader(file))
    except (*fetch.UNREADABLE, csv.Error) as error:
        raise UserError(f"{path} cannot be read ({error}); fetch it again") from error
    if not rows or tuple(rows[0]) != tuple(header) or any(len(row) != len(header) for row in rows):
        raise UserError(f"{path} must have the columns {', '.join(header)}; fetch it again")
    return {name: list(values) for name, values in zip(header, zip(*rows[1:], strict=True), strict=True)}


def _category(name: str, text: list[str], train: Tensor) -> Column:
    """Categories are the values of the train rows, `?` (missing) being one of them; others get code -1."""
    values = np.array(text)
    known = np.unique(values[train.numpy()])
    codes = np.searchsorted(known, values).clip(max=len(known) - 1)
    return Column(name, np.where(known[codes] == values, codes, -1), tuple(known.tolist()))


def _number(name: str, text: list[str]) -> Column:
    heavy = name.startswith(("capital-", "BILL_AMT", "PAY_AMT", "LIMIT_BAL"))
    try:
        return Column(name, np.array(text, dtype=np.float64), log=heavy)
    except ValueError as error:
        raise UserError(f"column '{name}' must hold numbers ({error}); fetch the file again") from error


def adult(root: str | Path | None) -> Dataset:
    table = _read_table(fetch.obtain(ADULT, root), uci.ADULT_COLUMNS)
    is_test = np.array(table.pop("split")) == "test"
    labels = np.array(table.pop("income")) == ">50K"
    train, test = torch.from_numpy(np.flatnonzero(~is_test)), torch.from_numpy(np.flatnonzero(is_test))
    columns = (_category(k, v, train) if k in ADULT_TEXT else _number(k, v) for k, v in table.items())
    return Dataset("adult", ("<=50K", ">50K"), tuple(columns), torch.from_numpy(labels.astype(np.int64)), train, test)


def credit(root: str | Path | None) -> Dataset:
    table = _read_table(fetch.obtain(CREDIT, root), uci.CREDIT_COLUMNS)
    table.pop("ID")
    labels = np.array(table.pop("default.payment.next.month"), dtype=np.int64)
    train, test = held_out(labels, 0.2)
    columns = (_category(k, v, train) if k in CREDIT_CODES else _number(k, v) for k, v in table.items())
    return Dataset("credit", ("pays", "defaults"), tuple(columns), torch.from_numpy(labels), train, test)
