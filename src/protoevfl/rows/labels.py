"""The label column as class numbers: names by the same spelling rule as categories, -1 where there
is no label."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protoevfl.errors import UserError, listed
from protoevfl.rows.columns import as_texts, looks_numeric

MOST = 1000  # classes


def encode_labels(
    column: Any, where: str, classes: Sequence[str] = ()
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """(n,) class numbers and the class names, numbers in numeric order, else alphabetical.
    `classes` lists all classes where some have no labelled row; a label outside it is an error.

    >>> encode_labels(pa.array([10, 9, None, 9]), "f")
    (array([ 1,  0, -1,  0]), ('9', '10'))
    """
    if pa.types.is_floating(column.type) and len(column.unique()) > 50:
        raise UserError(
            f"{where} holds many different fractions; a label must be a class, not an amount: cut "
            "it into classes"
        )
    texts = as_texts(column, where)
    present = [value for value in texts.unique().to_pylist() if value is not None]
    names = tuple(classes) or _ordered(present)
    if unknown := sorted(set(present) - set(names)):
        raise UserError(
            f"{where} holds '{unknown[0]}', which is not among the classes {listed(names, most=10)}"
        )
    if not classes and (twins := spelt_alike(names)):
        raise UserError(
            f"{where} spells a class in several ways ({' and '.join(map(repr, twins))}); make them "
            "one, or list every class under classes = [...] if they differ"
        )
    if len(names) > MOST:
        raise UserError(
            f"{where} holds {len(names)} different values; a label must be a class, of which "
            f"{MOST} at most"
        )
    if not present:
        raise UserError(f"{where} holds no label at all")
    if len(names) < 2:
        raise UserError(
            f"{where} holds one class only ('{names[0]}'); there is nothing to tell apart"
        )
    number = {name: i for i, name in enumerate(names)}
    encoded = texts.dictionary_encode()
    lookup = np.array([number[value] for value in encoded.dictionary.to_pylist()] + [-1], np.int64)
    codes: NDArray[np.int32] = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return lookup[codes], names


def spelt_alike(names: Sequence[str]) -> list[str]:
    """Two or more classes that differ in upper and lower case or in spaces only; none if all
    differ."""
    spellings: dict[str, list[str]] = {}
    for name in names:
        spellings.setdefault("".join(name.casefold().split()), []).append(name)
    return next((same[:5] for same in spellings.values() if len(same) > 1), [])


def _ordered(values: list[str]) -> tuple[str, ...]:
    key: Any = float if all(looks_numeric(v) for v in values) else str
    return tuple(sorted(values, key=key))
