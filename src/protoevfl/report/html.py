"""What a page shows: tables of entries. Templates draw them and escape all that comes from
records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

NOTHING = "–"


class Entry(NamedTuple):
    """One entry of a table."""

    shown: str
    sort: str = ""  # what the column is sorted by; empty: always last
    wide: bool = False  # may break into lines
    paper: str = ""  # the paper's number, below ours
    change: str = ""  # the difference to it, with its sign


@dataclass(frozen=True)
class Table:
    """A table that sorts; columns in which every entry is empty are left out."""

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    title: str = ""

    def __post_init__(self) -> None:
        kept = [
            n
            for n in range(len(self.head))
            if any(row[n].shown not in ("", NOTHING) for row in self.rows)
        ]
        object.__setattr__(self, "head", [self.head[n] for n in kept])
        object.__setattr__(self, "rows", [[row[n] for n in kept] for row in self.rows])


def text(value: object, wide: bool = False) -> Entry:
    shown = "" if value is None else str(value)
    return Entry(shown, shown, wide)


def number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def figure_text(value: float | None, digits: int = 1) -> Entry:
    return Entry(number(value, digits), "" if value is None else repr(float(value)))
