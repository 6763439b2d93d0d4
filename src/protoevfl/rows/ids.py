"""One id, one spelling: the versioned normaliser that both sides apply before private set
intersection.

    text(id) = trim(NFKC(id))  [casefolded on request];  123 = "123" = 123.0 = "123.0";  "00123"
    stays "00123"

Private set intersection compares bytes, so every difference in spelling silently loses rows. Each
party applies this file to its own ids and the two sides compare `IdRules.digest` before they
exchange anything else.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protoevfl.errors import UserError

VERSION = 1  # raise it whenever `_normalise` gives a different text for any id
MISSING = frozenset({"", "nan", "null", "none", "na", "n/a", "#n/a", "nat", "<na>"})
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
_ROUNDED = re.compile(r"[+-]?[0-9]([.,][0-9]+)?[eE]\+[0-9]+|[+-]?[0-9]{16,}\.0+")
_EXACT = 2**53  # above it a float no longer tells neighbouring whole numbers apart


@dataclass(frozen=True)
class IdRules:
    """What the parties must agree on before they align."""

    casefold: bool = False  # "Ab1" = "AB1"
    columns: int = 1  # number of columns that make one id

    def digest(self) -> str:
        """Hash of version and options; two parties with different digests must not align."""
        facts = json.dumps({"version": VERSION, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(facts.encode()).hexdigest()


@dataclass(frozen=True)
class IdCounts:
    """input = kept + missing + repeated; `unique` counts distinct ids, the repeated ones once."""

    input: int
    unique: int
    missing: int
    repeated: int

    @property
    def dropped(self) -> int:
        return self.missing + self.repeated


@dataclass(frozen=True)
class Ids:
    """Normalised, distinct ids of one file: `values[i]` stands in data row `rows[i]` (0 is the
    first)."""

    values: list[str]
    rows: NDArray[np.int64]  # (n,)
    counts: IdCounts
    rules: IdRules


def _normalise(value: object, rules: IdRules = IdRules()) -> str | None:  # noqa: B008 (frozen)
    """The one spelling of an id, or None where it is missing.

    >>> [_normalise(v) for v in (123, "123", 123.0, "123.0", " 123\\u00a0", "00123", "")]
    ['123', '123', '123', '123', '123', '00123', None]
    """
    if isinstance(value, str):
        return _text(value, rules.casefold)
    if value is None:
        return None
    if isinstance(value, bool | np.bool_ | bytes):
        raise UserError("ids must be text, whole numbers or dates, not true/false or bytes")
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        return (
            value.date().isoformat() if value.time() == datetime.min.time() else value.isoformat()
        )
    if isinstance(value, date):
        return value.isoformat()
    raise UserError(f"ids must be text, whole numbers or dates, not {type(value).__name__}")


def _join(parts: Sequence[str]) -> str:
    """Several columns as one id; lengths first, so that ("a", "bc") and ("ab", "c") differ.

    >>> _join(["a", "bc"]), _join(["ab", "c"]), _join(["7"])
    ('1:a2:bc', '2:ab1:c', '7')
    """
    return parts[0] if len(parts) == 1 else "".join(f"{len(p)}:{p}" for p in parts)


def collect(
    columns: Sequence[Sequence[Any]], rules: IdRules, where: str, on_bad: str = "refuse"
) -> Ids:
    """Normalise the id column(s) of one file. `on_bad`: "refuse" missing and repeated ids, or
    "drop" those rows (every copy of a repeated id: which one is right cannot be told)."""
    if len(columns) != rules.columns:
        raise UserError(f"{where}: {len(columns)} id columns given, {rules.columns} agreed on")
    values = _spellings(columns, rules, where)
    _refuse_rounded(columns, where)
    first: dict[str, int] = {}
    repeated: dict[int, int] = {}  # row -> the earlier row with the same id
    missing = [row for row, value in enumerate(values) if value is None]
    for row, value in enumerate(values):
        if value is not None and (earlier := first.setdefault(value, row)) != row:
            repeated[row] = earlier
    if on_bad == "refuse":
        _refuse(missing, repeated, where)
    bad = {*missing, *repeated.keys(), *repeated.values()}
    kept = [
        (row, value) for row, value in enumerate(values) if value is not None and row not in bad
    ]
    counts = IdCounts(len(values), len(first), len(missing), len(bad) - len(missing))
    return Ids([v for _, v in kept], np.array([r for r, _ in kept], dtype=np.int64), counts, rules)


def shape(values: Sequence[str]) -> str:
    """What the ids look like, in words and without showing one; two parties can compare it by
    telephone."""
    if not values:
        return "no ids"
    n, lengths = len(values), [len(v) for v in values]
    digits = [v for v in values if v.isascii() and v.isdigit()]
    facts = {
        "all digits": len(digits),
        "leading zero": sum(v.startswith("0") and len(v) > 1 for v in digits),
        "lower-case letters": sum(v.lower() == v and v.upper() != v for v in values),
        "upper-case letters": sum(v.upper() == v and v.lower() != v for v in values),
        "mixed case": sum(v.upper() != v and v.lower() != v for v in values),
        "like 1.2E+11 (damaged by a spreadsheet?)": sum(
            bool(re.fullmatch(r"\d\.\d+[eE]\+\d+", v)) for v in values
        ),
    }
    shares = ", ".join(f"{100 * k / n:.0f}% {name}" for name, k in facts.items() if k)
    return f"{min(lengths)} to {max(lengths)} characters" + (f", {shares}" if shares else "")


_LOOSER: dict[str, Callable[[str], str]] = {
    "leading zeros": lambda v: v.lstrip("0") or "0",
    "upper and lower case": str.casefold,
    "spaces and punctuation": lambda v: "".join(c for c in v if c.isalnum()),
}


def near_matches(left: Ids, right: Ids) -> dict[str, list[tuple[int, int]]]:
    """Kind of spelling -> rows (of left, of right) whose ids do not match but would, but for it."""
    matched = set(left.values) & set(right.values)
    pairs_of = {}
    for kind, loosen in _LOOSER.items():
        unmatched = {loosen(v): row for v, row in zip(right.values, right.rows) if v not in matched}
        pairs = [(int(row), int(unmatched[key])) for v, row in zip(left.values, left.rows)
                 if v not in matched and (key := loosen(v)) in unmatched]  # fmt: skip
        if pairs:
            pairs_of[kind] = pairs
    return pairs_of


def suspicions(left: Ids, right: Ids, names: tuple[str, str]) -> list[str]:
    """The same as lines for a person, rows not ids."""
    return near_match_lines(near_matches(left, right), names)


def near_match_lines(
    near: Mapping[str, Sequence[tuple[int, int]]], names: tuple[str, str]
) -> list[str]:
    """What `near_matches` found of two named parties, one line per kind of spelling."""
    lines = []
    for kind, pairs in near.items():
        i, j = pairs[0]
        lines.append(
            f"{len(pairs)} more ids of {names[0]} and {names[1]} would match but for {kind} "
            f"(first: row {i + 1} of {names[0]}, row {j + 1} of {names[1]})"
        )
    return lines


def _text(value: str, casefold: bool) -> str | None:
    if not value.isascii():
        value = unicodedata.normalize("NFKC", value)
    if casefold:
        value = unicodedata.normalize("NFKC", value.casefold())
    value = _trim(value)
    if match := _WHOLE.fullmatch(value):
        value = match[1]
    if value.casefold() in MISSING:
        return None
    return "0" if value in ("-0", "+0") else value


def _trim(value: str) -> str:
    """Drop space, control and invisible format characters (byte-order mark, zero-width space) at
    both ends."""
    value = value.strip()
    while value and unicodedata.category(value[0])[0] in "ZC":
        value = value[1:]
    while value and unicodedata.category(value[-1])[0] in "ZC":
        value = value[:-1]
    return value


def _number(value: Any) -> str | None:
    if value != value:  # NaN
        return None
    if value in (float("inf"), float("-inf")) or value != int(value):
        raise UserError(f"the id {value} is not a whole number; store ids as text or whole numbers")
    if not isinstance(value, Decimal) and abs(value) >= _EXACT:
        raise UserError(
            "ids of 16 digits and more are stored as floating-point numbers, which rounds them; "
            "store text"
        )
    return str(int(value))


def _spellings(columns: Sequence[Iterable[Any]], rules: IdRules, where: str) -> list[str | None]:
    try:
        parts = [[_normalise(v, rules) for v in column] for column in columns]
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if len(parts) == 1:
        return parts[0]
    return [_join_whole(row) for row in zip(*parts)]


def _join_whole(parts: Sequence[str | None]) -> str | None:
    """The parts of one id as one text; None where one is missing."""
    known = [part for part in parts if part is not None]
    return _join(known) if len(known) == len(parts) else None


def _is_rounded(value: str) -> bool:
    return ("+" in value or "." in value) and _ROUNDED.fullmatch(value.strip()) is not None


def _refuse_rounded(columns: Sequence[Sequence[Any]], where: str) -> None:
    """A text that went through a spreadsheet or a float lost its last digits: different customers
    would be one."""
    for column in columns:
        rows = [
            row for row, value in enumerate(column) if isinstance(value, str) and _is_rounded(value)
        ]
        if rows:
            raise UserError(
                f"{where}: {len(rows)} ids are rounded numbers ({_name(rows)}, like 1.23E+18 or "
                "1234567890123456789.0), as a spreadsheet or a float writes long ones; export the "
                "id column as text"
            )


def _refuse(missing: list[int], repeated: dict[int, int], where: str) -> None:
    if missing:
        raise UserError(
            f"{where}: {len(missing)} rows have no id ({_name(missing)}); fill them in, or set "
            'on_bad_ids = "drop" under [alignment]'
        )
    if repeated:
        row, earlier = next(iter(repeated.items()))
        raise UserError(
            f"{where}: {len(repeated)} rows repeat an id (row {row + 1} that of row {earlier + 1}; "
            f"{_name(list(repeated))}); "
            'keep one row an id, or set on_bad_ids = "drop" under [alignment]'
        )


def _name(rows: list[int]) -> str:
    """Rows as a person counts them: 1 is the first row below the header."""
    return (
        f"row{'s' * (len(rows) > 1)} "
        f"{', '.join(str(r + 1) for r in rows[:5])}{' ...' * (len(rows) > 5)}"
    )
