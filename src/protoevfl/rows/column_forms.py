"""What one text column looks like, gathered over batches, and how it is therefore read."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from protoevfl.rows import date_formats
from protoevfl.rows.date_formats import CENTURY, DAY_FIRST, MONTH_FIRST, ORDERS
from protoevfl.rows.number_formats import (
    COMMA,
    DECIMALS,
    POINT,
    cell_texts,
    forms,
    is_money,
    without_marks,
)
from protoevfl.rows.readings import Reading

FEW = 10  # different values up to which a mixture of numbers and texts can be categories
MIXED, MANY = 0.9, 0.5  # share of numbers from which a mixture is an error, a remark
_DISTINCT = 2000  # different values that are told apart
_WAY_OUT = "or list the column under categorical, or exclude it"


@dataclass(frozen=True)
class Verdict:
    reading: Reading | None = None  # None: categories
    error: str = ""
    remark: str = ""


class ColumnForms:
    """Counts of what the values of one column could be."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values = self.marked = self.infinite = 0
        self.numbers = self.dates = 0  # values that are one in some way
        self.fits = dict.fromkeys(DECIMALS, 0)
        self.orders = dict.fromkeys(ORDERS, 0)
        self.units: dict[str, int] = {}
        self.distinct: set[str] = set()
        self.seen: dict[str, tuple[int, str]] = {}  # kind -> row and text of the first such value
        self.days: set[float] = set()  # first and second numbers of dates
        self.months: set[float] = set()

    def add(self, column: Any, start: int) -> None:
        """Count a batch whose first row is `start`."""
        texts = cell_texts(column)
        valued, infinite = without_marks(texts)
        self.infinite += int(pc.sum(infinite).as_py() or 0)
        self.marked += valued.null_count - texts.null_count
        counted = valued.drop_null().value_counts()
        values = counted.field("values")
        counts = counted.field("counts").to_numpy()
        if not len(values):
            return
        self.values += int(counts.sum())
        if len(self.distinct) < _DISTINCT:
            self.distinct.update(values[:_DISTINCT].to_pylist())
        note = _Notes(self.seen, valued, values, start)
        is_number = self._add_numbers(values, counts, note)
        if is_number.all():
            note.first("no date", is_number)
        else:
            self._add_dates(values, counts, note)

    def _add_numbers(
        self, values: Any, counts: NDArray[np.int64], note: "_Notes"
    ) -> NDArray[np.bool_]:
        """Count the numbers and say which values (n,) are some."""
        shapes = forms(values)
        point = shapes.fits[POINT]
        comma = shapes.fits[COMMA]
        number = shapes.number
        self.numbers += int(counts[number].sum())
        for mark in DECIMALS:
            self.fits[mark] += int(counts[shapes.fits[mark]].sum())
        for unit in np.unique(shapes.unit.to_numpy(zero_copy_only=False)[number]).tolist():
            of_unit = number & pc.equal(shapes.unit, unit).to_numpy(zero_copy_only=False)
            self.units[unit] = self.units.get(unit, 0) + int(counts[of_unit].sum())
            note.first(f"unit {unit}", of_unit)
        either = point & comma & shapes.bodies("[.,]")
        note.first("other", ~number)
        note.first("number", number)
        note.first("sure point", point & ~comma)
        note.first("sure comma", comma & ~point)
        note.first("either", either)
        note.first("either, round", either & shapes.bodies("0$"))
        note.first("small", shapes.bodies("^[0-9]{1,3}$"))
        note.first("large", shapes.bodies("^[1-9][0-9]{3,}$"))
        note.first("leading zero", shapes.bodies("^0[0-9]+$"))
        note.first("not whole", ~shapes.bodies("^[0-9]+$"))
        note.first("value", np.ones(len(number), np.bool_))
        return number

    def _add_dates(self, values: Any, counts: NDArray[np.int64], note: "_Notes") -> None:
        is_date = np.zeros(len(values), np.bool_)
        for order in ORDERS:
            days, _ = date_formats.parse(values, order)
            fits = ~np.isnan(days)
            self.orders[order] += int(counts[fits].sum())
            is_date |= fits
            note.first(order, fits)
        self.dates += int(counts[is_date].sum())
        first, second, short = date_formats.parts(values)
        self.days |= set(np.unique(first[is_date & ~np.isnan(first)]).tolist())
        self.months |= set(np.unique(second[is_date & ~np.isnan(second)]).tolist())
        note.first("short year", is_date & short)
        note.first("sure day", is_date & (first > 12))
        note.first("sure month", is_date & (second > 12))
        note.first("dotted", is_date & _mask(pc.match_substring(values, ".")))
        note.first("no date", ~is_date)

    @property
    def sure_decimal(self) -> str:
        """The decimal mark that this column alone shows, "" where it leaves it open."""
        fitting = [mark for mark in DECIMALS if self.values and self.fits[mark] == self.values]
        return fitting[0] if len(fitting) == 1 else ""

    @property
    def sure_order(self) -> str:
        fitting = [o for o in ORDERS if self.values and self.orders[o] == self.values]
        return fitting[0] if len(fitting) == 1 else ""

    @property
    def gone(self) -> str:
        """In words, what is taken as missing."""
        texts = []
        if self.infinite:
            texts.append(f"{self.infinite:,} infinite values count as missing")
        if marks := self.marked - self.infinite:
            texts.append(f"{marks:,} marks such as '-' or '#N/A' count as missing")
        return "; ".join(texts)

    @property
    def telling(self) -> str:
        """A value that shows how the column is written."""
        kinds = ("sure comma", "sure point", "either", "sure day", "sure month", "value")
        return next(self.seen[kind][1] for kind in kinds if kind in self.seen)

    def verdict(
        self, decimal: str, order: str, guess: str, fewest: int, is_listed: bool
    ) -> Verdict:
        """How the column is read.

        decimal, order   what a setting or the rest of the file says, "" for nothing
        guess            the decimal mark where nothing else tells
        fewest           whole numbers with no more different values than this are categories
        is_listed        under `numeric`
        """
        if not self.values:
            return Verdict()
        if self.values in self.fits.values():
            return self._number(decimal, guess, fewest, is_listed)
        if self.values in self.orders.values():
            return self._date(order)
        return self._neither(is_listed)

    def _number(self, decimal: str, guess: str, fewest: int, is_listed: bool) -> Verdict:
        unit, problem = self._unit()
        if problem is not None:
            return problem
        if not self._has("not whole") and not unit and not is_listed:
            if self._has("leading zero"):
                return Verdict(
                    remark="holds whole numbers with leading zeros: taken as codes; list it under "
                    "numeric if they are amounts"
                )
            if len(self.distinct) <= fewest:
                return Verdict(
                    remark="holds texts that are whole numbers: taken as codes; list it under "
                    "numeric if they are amounts"
                )
        mark = self.sure_decimal
        if mark:
            return Verdict(Reading("number", mark, unit))
        if not self._has("either"):
            return Verdict(Reading("number", POINT, unit))
        mark = decimal or self._mark_of_thousands()
        if mark:
            return Verdict(Reading("number", mark, unit))
        other = COMMA if guess == POINT else POINT
        return Verdict(
            Reading("number", guess, unit),
            remark=f"could be written with a decimal comma or a decimal point: {guess} is taken; "
            f'decimal = "{other}" under this party is the other',
        )

    def _mark_of_thousands(self) -> str:
        """The decimal mark where numbers below and above a thousand show that the other mark
        separates thousands (950, 1,500) or cannot (1234, 1,500)."""
        text = self.seen["either"][1]
        used = COMMA if "," in text else POINT
        if self._has("large"):
            return used
        if self._has("small") and self._has("either, round"):
            return POINT if used == COMMA else COMMA
        return ""

    def _unit(self) -> tuple[str, Verdict | None]:
        """The unit of the column, and the verdict where it has no single one."""
        named = [unit for unit in self.units if unit]
        bare = self.units.get("", 0)
        if not named:
            return "", None
        if len(named) == 1 and (not bare or is_money(named[0])):
            return named[0], None
        kinds = sorted((f"unit {unit}" for unit in self.units), key=self.seen.__getitem__)
        shown = [self._shown(kind) for kind in kinds[:2]]
        if any(unit in "%‰" or is_money(unit) for unit in named) or bare / self.values >= MIXED:
            text = f"mixes units ({' and '.join(shown)}); write all in one, {_WAY_OUT}"
            return "", Verdict(error=text)
        return "", Verdict(
            remark="is taken as categories: different letters follow its numbers; write all in one "
            "unit, or list it under categorical if that is right"
        )

    def _date(self, order: str) -> Verdict:
        remark = ""
        fitting = [name for name in ORDERS if self.orders[name] == self.values]
        if len(fitting) == 1:
            chosen = fitting[0]
        elif order:
            chosen = order
        elif self._has("dotted"):
            chosen = DAY_FIRST
        else:
            # the first of every month: the number that never changes is the day
            is_month_first = self.months == {1.0} and len(self.days) > 1
            chosen = MONTH_FIRST if is_month_first else DAY_FIRST
            other = DAY_FIRST if is_month_first else MONTH_FIRST
            remark = (
                "holds dates whose day and month could be either way round: "
                f'{chosen.replace("_", " ")} is taken; dates = "{other}" under this party is the '
                "other"
            )
        if self._has("short year"):
            century = f"years of two digits are those of {CENTURY} to {CENTURY + 99}"
            remark = f"{remark}; {century}" if remark else century
        return Verdict(Reading("date", order=chosen), remark=remark)

    def _neither(self, is_listed: bool) -> Verdict:
        """Values that do not all fit one way of writing."""
        if is_listed:
            row, text = self.seen["other"] if self._has("other") else self.seen["sure comma"]
            return Verdict(error=f"is listed as numeric but holds '{text[:20]}' (row {row + 1})")
        if self.numbers == self.values:
            shown = f"{self._shown('sure comma')} and {self._shown('sure point')}"
            return Verdict(
                error=f"mixes decimal commas and decimal points ({shown}); write all in one way, "
                f"{_WAY_OUT}"
            )
        if self.dates == self.values:
            kinds = [kind for kind in ("sure day", "sure month", *ORDERS) if self._has(kind)][:2]
            shown = " and ".join(self._shown(kind) for kind in kinds)
            return Verdict(
                error=f"mixes ways of writing dates ({shown}); write all in one way, {_WAY_OUT}"
            )
        count, noun, odd = max((self.numbers, "numbers", "other"), (self.dates, "dates", "no date"))
        share = count / self.values
        if share >= MIXED and len(self.distinct) > FEW:
            strange = self.values - count
            text = self.seen[odd][1]
            return Verdict(
                error=f"mixes {noun} and text ({strange:,} of {self.values:,} values, such as "
                f"'{text[:20]}'); mend them, {_WAY_OUT}"
            )
        if share >= MANY:
            return Verdict(
                remark=f"is taken as categories although {count:,} of its {self.values:,} values "
                f"are {noun}; mend the others, or list it under categorical"
            )
        return Verdict()

    def _has(self, kind: str) -> bool:
        return kind in self.seen

    def _shown(self, kind: str) -> str:
        row, text = self.seen[kind]
        return f"'{text[:20]}' in row {row + 1}"


class _Notes:
    """Remembers the first value of each kind in a batch."""

    def __init__(
        self, seen: dict[str, tuple[int, str]], texts: Any, values: Any, start: int
    ) -> None:
        self.seen, self.texts, self.values, self.start = seen, texts, values, start

    def first(self, kind: str, mask: NDArray[np.bool_]) -> None:
        if kind in self.seen or not mask.any():
            return
        # values come in the order in which the batch shows them
        value = self.values[int(np.flatnonzero(mask)[0])]
        row = pc.index(self.texts, value).as_py()
        self.seen[kind] = (self.start + row, value.as_py())


def _mask(column: Any) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return mask.astype(np.bool_)
