"""What one pass over a party's rows gathers of each column, and the code of a column made of it."""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protoevfl.errors import UserError, listed, nearest
from protoevfl.rows.columns import as_numbers, as_texts, is_category
from protoevfl.rows.readings import Reading

HEAVY = 1.5  # skewness above which the logarithm is tried
SAMPLE = 65_536  # rows
CONSTANT = "it has the same value everywhere"
_MOST_TEXTS = 100_000  # different texts of a column that are counted
_IF_CATEGORY = "list it under categorical if they are categories"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureSpec:
    """Which columns, and how to read them where the type alone does not tell."""

    features: tuple[str, ...]
    categorical: Collection[str] = ()
    numeric: Collection[str] = ()
    max_categories: int = 32
    decimal: str | None = None  # "comma" or "point" where the values leave it open
    dates: str | None = None  # "day_first" or "month_first" likewise

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
    reading: Reading | None = None  # how its texts are written; None: plain numbers

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


class Survey:
    """What one pass gathers: for numbers a sample of rows and counts of missing values, for
    categories counts."""

    def __init__(
        self, spec: FeatureSpec, where: str, readings: Mapping[str, Reading] | None = None
    ) -> None:
        self.spec, self.where, self.rows = spec, where, 0
        self.readings = dict(readings or {})
        self.infinite: Counter[str] = Counter()
        self.free_text: set[str] = set()  # columns with too many texts to count
        self.numbers: list[str] | None = None
        self.counts: dict[str, Counter[str | None]] = {}
        self.missing = np.zeros(0, np.int64)
        self.keys, self.sample = np.zeros(0, np.uint64), np.zeros((0, 0))
        self.size = 0

    def add(self, batch: Any, start: int, keep: NDArray[np.bool_] | None) -> None:
        if self.numbers is None:
            self._begin(batch.schema)
        index, whole = np.arange(start, start + batch.num_rows), batch
        if keep is not None:
            index, batch = index[keep], batch.filter(pa.array(keep))
        self.rows += batch.num_rows
        for name, counts in self.counts.items():
            if name in self.free_text:
                continue
            _count(counts, as_texts(batch.column(name), name))
            if len(counts) > _MOST_TEXTS and name not in self.spec.categorical:
                self.free_text.add(name)
                counts.clear()
        if self.numbers:
            # (b, numbers)
            x = np.stack([self._values(batch, whole, c, start) for c in self.numbers], axis=1)
            self.missing += np.isnan(x).sum(axis=0)
            self._keep(_scatter(index), x)

    def _values(self, batch: Any, whole: Any, name: str, start: int) -> Floats:
        """A column of the rows to learn from; an error counts all rows, as a person looking at the
        file does."""
        column, reading = batch.column(name), self.readings.get(name)
        if pa.types.is_floating(column.type):
            self.infinite[name] += int(pc.sum(pc.is_inf(column)).as_py() or 0)
        try:
            return as_numbers(column, name, self.where, start, reading)
        except UserError:
            as_numbers(whole.column(name), name, self.where, start, reading)
            raise

    def _begin(self, schema: Any) -> None:
        numeric = {*self.spec.numeric, *self.readings}
        kinds = {c: is_category(schema.field(c).type, c, self.spec.categorical, numeric)
                 for c in self.spec.features}  # fmt: skip
        self.numbers = [c for c, category in kinds.items() if not category]
        self.counts = {c: Counter() for c, category in kinds.items() if category}
        self.missing = np.zeros(len(self.numbers), np.int64)
        self.sample = np.zeros((0, len(self.numbers)))
        self.size = min(SAMPLE, max(1_000, (1 << 24) // max(1, len(self.numbers))))

    def _keep(self, keys: NDArray[np.uint64], x: Floats) -> None:
        """The rows with the smallest keys so far."""
        if len(self.keys) == self.size:
            near = keys < self.keys[-1]
            keys, x = keys[near], x[near]
        keys = np.concatenate([self.keys, keys])
        x = np.concatenate([self.sample, x])
        best = np.argsort(keys)[: self.size]
        self.keys, self.sample = keys[best], x[best]

    def codes(self) -> tuple[list[Number | Category], dict[str, str]]:
        """The code of each column in the order of the specification, and the columns that say
        nothing."""
        if not self.rows:
            raise UserError(f"{self.where} has no rows to learn from")
        numbers = {c: i for i, c in enumerate(self.numbers or [])}
        codes: list[Number | Category] = []
        dropped: dict[str, str] = {}
        for name in self.spec.features:
            code = self._number(name, numbers[name]) if name in numbers else self._category(name)
            if isinstance(code, str):
                dropped[name] = code
            else:
                codes.append(code)
        if not codes:
            why = listed([f"'{name}' {text}" for name, text in dropped.items()], "; ")
            raise UserError(f"{self.where} has no usable feature column: {why}")
        return codes, dropped

    def sampled(self, i: int) -> Floats:
        """The values of a number's sample."""
        x = self.sample[:, i]
        return x[~np.isnan(x)]

    def _number(self, name: str, i: int) -> Number | str:
        x = self.sampled(i)
        missing = bool(self.missing[i])
        if not len(x):
            return "it has no values"
        if x.min() == x.max() and not missing:
            return CONSTANT
        unit = _unit(x)
        scale = _heavy(x / unit)
        g, back = curve(x / unit, scale), unit if scale is None else 1.0
        std = back * float(g.std())
        return Number(
            name,
            mean=back * float(g.mean()),
            std=std if std > 0 else 1.0,
            median=unit * float(np.median(x / unit)),
            scale=None if scale is None else unit * scale,
            missing=missing,
            reading=self.readings.get(name),
        )

    def _category(self, name: str) -> Category | str:
        counts = self.counts[name].copy()
        if name in self.free_text:
            return f"free text: more than {_MOST_TEXTS:,} different texts; {_IF_CATEGORY}"
        missing = counts.pop(None, 0) > 0
        values_there = sum(counts.values())
        many = len(counts) > 1000 or (values_there >= 40 and len(counts) > values_there / 2)
        if many and name not in self.spec.categorical:
            texts = f"{len(counts):,} different texts in {values_there:,} rows"
            return f"free text: {texts}; {_IF_CATEGORY}"
        rare = max(2, min(50, self.rows // 1000))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        values = [v for v, n in ranked[: self.spec.max_categories] if n >= rare and v is not None]
        other = len(values) < len(counts)
        if len(values) + other + missing < 2:
            return CONSTANT if values else "no value occurs often enough"
        return Category(name, tuple(sorted(values)), other, missing)


def _count(counts: Counter[str | None], texts: Any) -> None:
    counted = texts.value_counts()
    for value, n in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist()):
        counts[value] += n


def _unit(x: Floats) -> float:
    """What to divide by so that no sum or square overflows: 1 but for absurd values (the largest
    number as "none")."""
    largest = float(np.abs(x).max())
    return largest if largest > 1e100 else 1.0


def _heavy(x: Floats) -> float | None:
    """The scale of the logarithm where it makes a skewed column clearly less skewed, else None."""
    if len(np.unique(x[:10_000])) <= 10 or abs(skew := _skewness(x)) <= HEAVY:
        return None
    scale = float(np.median(np.abs(x[x != 0])))
    return scale if abs(_skewness(curve(x, scale))) < 0.7 * abs(skew) else None


def _skewness(x: Floats) -> float:
    centred = x - x.mean()
    std = math.sqrt(float((centred**2).mean()))
    return float(((centred / std) ** 3).mean()) if std > 0 else 0.0


def _scatter(index: NDArray[np.int64]) -> NDArray[np.uint64]:
    """(b,) a fixed pseudo-random key for each row number (the finaliser of splitmix64)."""
    z = index.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
