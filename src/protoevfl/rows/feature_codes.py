"""How one column becomes features: `Number` and `Category`, plain values that go to JSON and
back."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protoevfl.errors import UserError, nearest

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureSpec:
    """Which columns, and how to read them where the type alone does not tell."""

    features: tuple[str, ...]
    categorical: Collection[str] = ()
    numeric: Collection[str] = ()
    max_categories: int = 32

    def check(self, where: str) -> None:
        """Columns that are to be read in a certain way must be features, and in one way only."""
        for column in (*self.categorical, *self.numeric):
            if column not in self.features:
                raise UserError(
                    f"{where}: '{column}' is not one of the features; "
                    f"{nearest(column, self.features)}"
                )
        check_kinds(where, self.categorical, self.numeric)


def check_kinds(where: str, categorical: Collection[str], numeric: Collection[str]) -> None:
    if both := set(categorical) & set(numeric):
        raise UserError(f"{where}: '{min(both)}' is listed as categorical and as numeric")


@dataclass(frozen=True)
class Number:
    name: str
    mean: float
    std: float
    median: float
    scale: float | None  # of the logarithm; None: none taken
    missing: bool

    @property
    def labels(self) -> list[str]:
        return [self.name, f"{self.name} missing"] if self.missing else [self.name]


@dataclass(frozen=True)
class Category:
    name: str
    values: tuple[str, ...]
    other: bool
    missing: bool

    def slots(self, texts: Any) -> NDArray[np.int64]:
        """(n,) feature within the category's span, -1 for none; a value unknown in training counts
        as rare."""
        encoded = texts.dictionary_encode()
        slot = {value: i for i, value in enumerate(self.values)}
        otherwise = len(self.values) if self.other else -1
        absent = len(self.values) + self.other if self.missing else -1
        lookup = [slot.get(value, otherwise) for value in encoded.dictionary.to_pylist()] + [absent]
        codes: NDArray[np.int32] = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.array(lookup, np.int64)[codes]  # -1 picks the last

    @property
    def labels(self) -> list[str]:
        extra = ["other"] * self.other + ["missing"] * self.missing
        return [f"{self.name} = {value}" for value in self.values] + [
            f"{self.name} {what}" for what in extra
        ]


def curve(x: Floats, scale: float | None) -> Floats:
    """g(x) = x, or sign(x) log(1 + |x| / scale)."""
    return x if scale is None else np.sign(x) * np.log1p(np.abs(x) / scale)
