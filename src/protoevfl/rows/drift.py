"""What a party's columns looked like in training, kept beside its encoder, and how new rows differ.

    number     share of missing values; 41 quantiles; the share far beyond them
    category   share of missing values; the rate of every value with five rows or more

A model trusts its columns. Euros that come as cents, a column that a new export leaves empty, a
branch that did not exist: all of them give predictions, and wrong ones. `differences` compares two
pictures and says it in words with the number of rows, for a person to judge. Its bars are set so
that rows drawn like those of training pass.

A picture names no row: rare categories are counted together, the extremes are
the quantiles of half a percent, and numbers are rounded to four digits.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from protoevfl.rows.survey import Survey

LEVELS = np.concatenate([[0.005, 0.01], np.linspace(0.025, 0.975, 37), [0.99, 0.995]])
MIDDLE = len(LEVELS) // 2
LEAST_ROWS = 5  # of a category that is kept by name
MOST_VALUES = 1000  # categories kept by name
SHIFT = 0.25  # difference between two distribution functions, or sums of rates, that is told
FAR = 3.0  # times the way from the median to an extreme quantile: far outside
NEW_MISSING = 0.01  # share of missing values where training had none
MORE_MISSING = 0.1  # further share of them where it had some
FAR_SHARE = 0.005
FEW = 20  # rows below which missing values in a column that had some say nothing
SHOWN = 3  # new categories that are named
UNITS = (1000.0, 100.0, 10.0)


@dataclass(frozen=True)
class NumberPicture:
    """A column of numbers."""

    rows: int
    missing: float  # share of the rows
    quantiles: tuple[float, ...]  # at LEVELS
    far: float  # share of the values outside `reach`

    @classmethod
    def of(cls, rows: int, missing: int, values: NDArray[np.float64]) -> "NumberPicture":
        """`values` (n,) are those of a sample that are not missing."""
        if not len(values):
            return cls(rows, missing / max(1, rows), (), 0.0)
        quantiles = np.quantile(values, LEVELS, method="inverted_cdf").tolist()
        rounded = tuple(float(f"{value:.4g}") for value in quantiles)
        low, high = reach(rounded)
        far = float(((values < low) | (values > high)).mean())
        return cls(rows, missing / max(1, rows), rounded, far)


@dataclass(frozen=True)
class CategoryPicture:
    """A column of categories."""

    rows: int
    missing: float
    rates: dict[str, float]  # of the rows that have a value
    rare: float  # what the rates lack of 1: values of a few rows

    @classmethod
    def of(cls, rows: int, counts: Mapping[str | None, int]) -> "CategoryPicture":
        known = {value: n for value, n in counts.items() if value is not None}
        total = max(1, sum(known.values()))
        often = sorted(known, key=lambda value: (-known[value], value))[:MOST_VALUES]
        rates = {value: known[value] / total for value in often if known[value] >= LEAST_ROWS}
        rare = max(0.0, 1 - sum(rates.values())) if len(rates) < len(known) else 0.0
        return cls(rows, counts.get(None, 0) / max(1, rows), rates, rare)


Picture = NumberPicture | CategoryPicture
Counts = Mapping[str | None, int]


def reach(quantiles: tuple[float, ...]) -> tuple[float, float]:
    """Values outside are far from those of training."""
    low, middle, high = quantiles[0], quantiles[MIDDLE], quantiles[-1]
    slack = 1e-3 * max(abs(low), abs(high))  # of rounding
    return middle - FAR * (middle - low) - slack, middle + FAR * (high - middle) + slack


def number_differences(
    before: NumberPicture, rows: int, missing: int, values: NDArray[np.float64]
) -> list[str]:
    """What a person should know of a column of numbers, in words that follow its name.

    rows      of the new file
    missing   how many of them lack a value
    values    (n,) of a sample of the others
    """
    lines = _missing(before.missing, rows, missing)
    if not len(values) or not before.quantiles:
        return lines
    now = NumberPicture.of(rows, missing, values)
    low, high = reach(before.quantiles)
    far = int(((values < low) | (values > high)).sum())
    outside = far > _most(len(values), before.far + FAR_SHARE, before.rows)
    shares = (1 - before.missing) * before.rows, rows - missing
    noise = 1.6 * math.sqrt(sum(1 / max(1.0, n) for n in shares))
    if _distance(before.quantiles, now.quantiles) > SHIFT + noise:
        lines.append(_shifted(before, now, far / len(values)))
    elif outside:
        lines.append(
            f"has {100 * far / len(values):.1f} % of its values far outside those of training "
            f"(nearly all from {before.quantiles[0]:g} to {before.quantiles[-1]:g})"
        )
    return lines


def category_differences(before: CategoryPicture, rows: int, counts: Counts) -> list[str]:
    """The same of a column of categories; `counts` of its values, None for missing."""
    lines = _missing(before.missing, rows, counts.get(None, 0))
    known = {value: n for value, n in counts.items() if value is not None}
    total = sum(known.values())
    unknown = [value for value in known if value not in before.rates]
    strangers = sum(known[value] for value in unknown)
    if strangers > (_most(total, before.rare, before.rows) if before.rare else 0):
        often = sorted(unknown, key=lambda value: (-known[value], value))[:SHOWN]
        named = ", ".join(f"'{value[:30]}'" for value in often)
        more = " ..." if len(unknown) > SHOWN else ""
        never = "hardly ever had" if before.rare else "did not have"
        lines.append(
            f"has values in {strangers:,} of {rows:,} rows that training {never} ({named}{more})"
        )
    if total:
        now = {value: known.get(value, 0) / total for value in before.rates}
        change = {value: now[value] - rate for value, rate in before.rates.items()}
        apart = (sum(map(abs, change.values())) + abs(strangers / total - before.rare)) / 2
        if change and apart > SHIFT + math.sqrt(len(change) / total):
            most = max(change, key=lambda value: abs(change[value]))
            lines.append(
                f"has other rates than in training: '{most[:30]}' {100 * now[most]:.0f} % of the "
                f"rows, {100 * before.rates[most]:.0f} % then"
            )
    return lines


def pictures_of(survey: "Survey") -> dict[str, Picture]:
    """What each column looks like, to compare later rows with."""
    numbers: dict[str, Picture] = {
        name: NumberPicture.of(survey.rows, int(survey.missing[i]), survey.sampled(i))
        for i, name in enumerate(survey.numbers or [])
    }
    return numbers | {
        name: CategoryPicture.of(survey.rows, counts)
        for name, counts in survey.counts.items()
        if name not in survey.free_text  # left out of training
    }


def differences(pictures: Mapping[str, Picture], survey: "Survey") -> list[str]:
    """How the rows of a survey differ from those of training: one line per column and
    difference."""
    rows = survey.rows
    lines_of: dict[str, list[str]] = {}
    for i, name in enumerate(survey.numbers or []):
        picture = pictures.get(name)
        if isinstance(picture, NumberPicture):
            missing = int(survey.missing[i])
            lines_of[name] = number_differences(picture, rows, missing, survey.sampled(i))
    for name, counts in survey.counts.items():
        picture = pictures.get(name)
        if isinstance(picture, CategoryPicture):
            lines_of[name] = category_differences(picture, rows, counts)
    return [f"column '{name}' {text}" for name, lines in lines_of.items() for text in lines]


def pictures_state(pictures: Mapping[str, Picture]) -> dict[str, Any]:
    """JSON values; `pictures_from` restores them."""
    return {name: asdict(picture) for name, picture in pictures.items()}


def pictures_from(state: Mapping[str, Any]) -> dict[str, Picture]:
    return {
        name: CategoryPicture(**facts)
        if "rates" in facts
        else NumberPicture(**{**facts, "quantiles": tuple(facts["quantiles"])})
        for name, facts in state.items()
    }


def _missing(before: float, rows: int, missing: int) -> list[str]:
    """One line where more values are missing than by chance."""
    share = missing / max(1, rows)
    chance = 4 * math.sqrt(before * (1 - before) / max(1, rows))
    more = share > before + max(MORE_MISSING, chance) and rows >= FEW
    if not (share > NEW_MISSING if before == 0 else more):
        return []
    if missing == rows:
        return [f"is empty in all {rows:,} rows (in training {_percent(before)})"]
    return [f"is missing in {missing:,} of {rows:,} rows (in training {_percent(before)})"]


def _most(rows: int, share: float, seen: int) -> float:
    """How many of so many rows may be of a kind that had this share of the `seen` rows, within
    three standard deviations of both counts."""
    most = share + 3 * math.sqrt(share / max(1, seen)) + 3 / max(1, seen)
    return rows * most + 3 * math.sqrt(rows * most)


def _percent(share: float) -> str:
    return "never" if share == 0 else f"{100 * share:.1f} % of them"


def _distance(before: tuple[float, ...], now: tuple[float, ...]) -> float:
    """The largest difference between two distribution functions known by their quantiles."""
    points = np.array(sorted({*before, *now}))

    def below(quantiles: tuple[float, ...]) -> NDArray[np.float64]:
        shares = np.concatenate([[0.0], LEVELS])
        shares[-1] = 1.0
        return shares[np.searchsorted(np.array(quantiles), points, side="right")]

    return float(np.abs(below(before) - below(now)).max())


def _shifted(before: NumberPicture, now: NumberPicture, far: float) -> str:
    medians = before.quantiles[MIDDLE], now.quantiles[MIDDLE]
    text = f"differs from training: its median is {medians[1]:g}, then {medians[0]:g}"
    if far > 0.01:
        text += f", and {100 * far:.0f} % of its values are far outside"
    factor = _factor(before.quantiles, now.quantiles)
    return text if factor is None else f"{text}; {factor}"


def _factor(before: tuple[float, ...], now: tuple[float, ...]) -> str | None:
    """A change of unit: the same power of ten at all quartiles."""
    quarters = [MIDDLE - MIDDLE // 2, MIDDLE, MIDDLE + MIDDLE // 2]
    if any(before[q] * now[q] <= 0 for q in quarters):
        return None
    ratios = [now[q] / before[q] for q in quarters]
    for unit in UNITS:
        for times, words in ((unit, f"{unit:g} times"), (1 / unit, f"1/{unit:g} of")):
            if all(times / 1.6 < ratio < times * 1.6 for ratio in ratios):
                return f"about {words} what it was: another unit, or a shifted decimal point?"
    return None
