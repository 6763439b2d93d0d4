"""Means over the seeds of a cell, for figures: numbers, lists and tables of numbers from
records."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protoevfl.bench.records import mean_std
from protoevfl.reproduction.spec import Cell, Record, dig

Pairs = Sequence[tuple[Cell, Sequence[Record]]]
Array = NDArray[np.float64]


def _stacked(records: Sequence[Record], path: str) -> Array | None:
    """(seeds, ...) of the value at a path; records without it, or of another shape, are left out;
    None: NaN."""
    values: list[Any] = [
        value for value in (dig(record, path) for record in records) if value is not None
    ]
    arrays = [np.asarray(value, dtype=float) for value in values if _is_numeric(value)]
    arrays = [a for a in arrays if a.shape == arrays[0].shape and a.size]
    return np.stack(arrays) if arrays else None


def _is_numeric(value: Any) -> bool:
    try:
        np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return False
    return True


def mean(records: Sequence[Record], path: str) -> Array | None:
    """The mean over seeds, of the shape of the value."""
    values = _stacked(records, path)
    if values is None:
        return None
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a class no seed has: NaN
        average: Array = np.nanmean(values, axis=0)
    return average


def spread(records: Sequence[Record], path: str) -> float:
    """Standard deviation over seeds of a number; 0 for a single seed."""
    values = _stacked(records, path)
    return (mean_std(values.tolist())[1] or 0.0) if values is not None else 0.0


def groups(pairs: Pairs, *names: str) -> dict[tuple[str, ...], list[tuple[Cell, Sequence[Record]]]]:
    """Cells that have records, by their tags."""
    by_tags: dict[tuple[str, ...], list[tuple[Cell, Sequence[Record]]]] = {}
    for cell, records in pairs:
        if records:
            by_tags.setdefault(tuple(cell.tags.get(name, "") for name in names), []).append(
                (cell, records)
            )
    return by_tags
