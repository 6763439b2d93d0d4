"""The numbers the paper prints: one CSV file for each of its tables, in the folder `paper`.

A cell of ours finds its printed number by its tags: every column of the file that is not a number
of the table must be a tag with the same value. Files about one data set carry no column for it;
their name ends with it.

    >>> cell = {"variant": "vanilla", "dataset": "modelnet10", "aligned": "200"}
    >>> find("ablation_modelnet10", cell, "accuracy")
    71.03
    >>> find("ablation_modelnet10", {**cell, "dataset": "digits"}, "accuracy")

Class numbers of `rare_classes_modelnet10.csv` are indices from 0, as ours are: the paper's text
names 1 bed, 2 chair, 3 desk, 5 monitor, which is the alphabetical order counted from 0 (0 is
bathtub, 4 dresser).
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources

NUMBERS = (
    "accuracy",
    "std",
    "hours",
    "mean_rounds_over_four_datasets",
    "attack_accuracy",
    "gamma",
    "mid",
    "wcs",
)
NOTES = ("sent_to_passive", "classes in table")  # columns that neither name nor fill a cell
ALIASES = {
    "ss_vfl_i": "ss_vfl",
    "ss_vfl_c": "ss_vfl",
    "proto_evfl paper": "proto_evfl",
    "proto_evfl one_way": "",
    "proto_evfl paper_adam": "proto_evfl",
    "proto_evfl undefended": "proto_evfl",
}


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """The rows of one of the paper's tables."""
    text = (
        resources.files("protoevfl.reproduction")
        .joinpath("paper", f"{name}.csv")
        .read_text(encoding="utf-8")
    )
    implied = {"dataset": "modelnet10"} if name.endswith("_modelnet10") else {}
    return tuple({**implied, **row} for row in csv.DictReader(text.splitlines()))


def _keys(name: str) -> tuple[str, ...]:
    """The columns that say which cell a row is."""
    skip = (*NUMBERS, *NOTES, *(("classes",) if name == "imbalance" else ()))
    return tuple(column for column in table(name)[0] if column not in skip)


@cache
def _index(name: str) -> dict[tuple[str, ...], dict[str, str]]:
    return {tuple(row[key] for key in _keys(name)): row for row in table(name)}


def find(name: str | None, tags: Mapping[str, str], column: str | None) -> float | None:
    """The printed number of a cell, None where the paper prints none."""
    if name is None or column is None or tags.get("quick"):
        return None
    named = {
        key: ALIASES.get(value, value) if key == "method" else value for key, value in tags.items()
    }
    row = _index(name).get(tuple(named.get(key, "") for key in _keys(name)))
    return float(row[column]) if row and row.get(column) else None
