"""Dates as people write them, as days since 1970.

    31/01/2020   01/31/2020   31.1.20   2020/01/31   31 Jan 2020   Jan 31, 2020   with a time or not

Whether the day or the month comes first is never guessed from one value: `parse` reads all texts of
a column in one order and says which do not fit it.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

DAY_FIRST, MONTH_FIRST, YEAR_FIRST, NAMED = "day_first", "month_first", "year_first", "named"
ORDERS = (YEAR_FIRST, DAY_FIRST, MONTH_FIRST, NAMED)
CENTURY = 1940  # two-digit years are those of 1940 to 2039
Mask = NDArray[np.bool_]
_TIME = (
    r"(?:(?:T|,? )(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}(?:\.[0-9]+)?))?"
    r" ?(?P<half>(?:[AaPp]\.?[Mm]\.?)?)Z?)?$"
)
_NUMBERS = r"^(?P<one>[0-9]{1,2})[./-](?P<two>[0-9]{1,2})[./-](?P<year>[0-9]{4}|[0-9]{2})"
_PATTERNS = {
    YEAR_FIRST: rf"^(?P<year>[0-9]{{4}})[./-](?P<month>[0-9]{{1,2}})[./-](?P<day>[0-9]{{1,2}}){_TIME}",
    DAY_FIRST: (_NUMBERS + _TIME).replace("<one>", "<day>").replace("<two>", "<month>"),
    MONTH_FIRST: (_NUMBERS + _TIME).replace("<one>", "<month>").replace("<two>", "<day>"),
}
_YEAR = "(?P<year>[0-9]{4}|[0-9]{2})"
_NAMED = (
    rf"^(?P<day>[0-9]{{1,2}})\.?[ -](?P<month>[A-Za-z]{{3,9}})\.?,?[ -]{_YEAR}{_TIME}",
    rf"^(?P<month>[A-Za-z]{{3,9}})\.? (?P<day>[0-9]{{1,2}}),? {_YEAR}{_TIME}",
)
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH_NUMBER = {
    name: number
    for number, month in enumerate(_MONTHS, start=1)
    for name in (month, month[:3], "sept" if month == "september" else month[:3])
}


def parse(texts: Any, order: str) -> tuple[NDArray[np.float64], Mask]:
    """Texts (n,) as days since 1970 with the time of day as a fraction, NaN where there is none,
    and which texts are not dates in this order."""
    absent = texts.is_null().to_numpy(zero_copy_only=False).astype(np.bool_)
    if order != NAMED:
        days = _days(pc.extract_regex(texts, _PATTERNS[order]))
    else:
        both = [_days(pc.extract_regex(texts, pattern)) for pattern in _NAMED]
        days = np.where(np.isnan(both[0]), both[1], both[0])
    return days, np.isnan(days) & ~absent


def parts(texts: Any) -> tuple[NDArray[np.float64], NDArray[np.float64], Mask]:
    """First and second number of dates that begin with a day or a month, NaN for other texts, and
    which have a year of two digits."""
    fields = pc.extract_regex(texts, _PATTERNS[DAY_FIRST])
    short = pc.equal(pc.utf8_length(fields.field("year")), 2)
    is_short = pc.fill_null(short, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return _number(fields, "day"), _number(fields, "month"), is_short


def _days(fields: Any) -> NDArray[np.float64]:
    """(n,) days of the parts that a pattern found; NaN where there is no such day."""
    year, day = _number(fields, "year"), _number(fields, "day")
    month = _month(fields.field("month"))
    short = pc.equal(pc.utf8_length(fields.field("year")), 2)
    is_short = pc.fill_null(short, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    year[is_short] = CENTURY + (year[is_short] - CENTURY) % 100
    hours = _hours(fields)
    good = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1) & (hours < 24)
    days = np.full(len(year), np.nan)
    first = ((year[good] - 1970) * 12 + month[good] - 1).astype("datetime64[M]")
    date = first.astype("datetime64[D]") + (day[good] - 1).astype("timedelta64[D]")
    same_month = date.astype("datetime64[M]") == first  # there is no 31 April
    values = date.astype(np.int64) + hours[good] / 24
    days[good] = np.where(same_month, values, np.nan)
    return days


def _hours(fields: Any) -> NDArray[np.float64]:
    """(n,) time of day in hours, 0 where none is written, 99 where there is no such time."""
    hour, minute, second = (
        np.nan_to_num(_number(fields, name)) for name in ("hour", "minute", "second")
    )
    half = pc.utf8_slice_codeunits(pc.utf8_lower(fields.field("half")), 0, 1)
    halves = pc.fill_null(half, "").to_numpy(zero_copy_only=False)
    twelve = (halves == "a") | (halves == "p")
    wrong = (minute > 59) | (second >= 61) | (twelve & ((hour < 1) | (hour > 12)))
    hour = np.where(twelve, hour % 12 + 12 * (halves == "p"), hour)
    hours: NDArray[np.float64] = np.where(wrong, 99.0, hour + minute / 60 + second / 3600)
    return hours


def _number(fields: Any, name: str) -> NDArray[np.float64]:
    field = fields.field(name)
    filled = pc.if_else(pc.equal(field, ""), pa.scalar(None, pa.string()), field)
    values: NDArray[np.float64] = filled.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values.copy()


def _month(names: Any) -> NDArray[np.float64]:
    """(n,) numbers of months written as digits or in English."""
    encoded = pc.utf8_lower(names).dictionary_encode()
    known = [_month_number(name) for name in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    months: NDArray[np.float64] = np.array([*known, np.nan])[codes]
    return months


def _month_number(name: str) -> float:
    return float(name) if name.isdigit() else _MONTH_NUMBER.get(name, np.nan)
