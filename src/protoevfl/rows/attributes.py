"""Side information on classes: a CSV file with one line per class, its name and then its attributes
as numbers.

    class,loops,strokes
    zero,1,1
    one,0,1

The active party writes it, for every class, labelled or not. A header may be there or not.
"""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from protoevfl.errors import UserError


def read_attributes(path: str | Path, classes: Sequence[str]) -> Tensor:
    """(Z, K) attributes in the order of `classes`, from a line for each of them."""
    path = Path(path)
    numbers: dict[str, list[float]] = {}
    for line, name, cells in _lines(path):
        if name not in classes:
            if not numbers and not any(map(_is_number, cells)):
                continue  # the header
            raise UserError(
                f"{path.name} line {line}: '{name}' is not a class; the classes are "
                f"{_listed(classes)}"
            )
        if name in numbers:
            raise UserError(f"{path.name} line {line}: class '{name}' has a line already")
        numbers[name] = [_number(cell, f"{path.name} line {line}") for cell in cells]
        if len(numbers[name]) != len(next(iter(numbers.values()))) or not cells:
            raise UserError(
                f"{path.name} line {line}: {len(cells)} values; every class needs the same number, "
                "1 or more"
            )
    if absent := [name for name in classes if name not in numbers]:
        raise UserError(
            f"{path.name} has no line for class {_listed(absent)}; attributes are needed for every "
            "class"
        )
    return torch.tensor([numbers[name] for name in classes])


def _lines(path: Path) -> list[tuple[int, str, list[str]]]:
    """(line number, first cell, other cells) of every line that is not empty."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror}; give a CSV file with one line per class"
        ) from None
    except (UnicodeDecodeError, csv.Error):
        raise UserError(
            f"{path.name} is not a CSV file in UTF-8; write one line per class: its name, numbers"
        ) from None
    return [(line, row[0], row[1:]) for line, row in rows if any(row)]


def _number(cell: str, where: str) -> float:
    if not _is_number(cell):
        raise UserError(f"{where}: '{cell}' is not a number")
    return float(cell)


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + " ..." * (len(names) > 10)
