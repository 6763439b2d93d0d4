"""What the pages of an audit are made of: sections of sentences and tables, figures in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """Column heads and lines of plain text."""

    heads: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    title: str
    parts: tuple[str | Table, ...]


def percent(value: float | None, half: float | None = None) -> str:
    """A fraction as a percentage, with its interval where there is one.

    >>> percent(0.1234, 0.01), percent(None)
    ('12.3 ± 1.0 %', '-')
    """
    if value is None:
        return "-"
    spread = "" if half is None or half != half else f" ± {100 * half:.1f}"
    return f"{100 * value:.1f}{spread} %"


def points(value: float, half: float | None = None) -> str:
    """A difference of fractions in points, with its interval where there is one.

    >>> points(0.012), points(-0.0001, 0.02)
    ('+1.2', '+0.0 ± 2.0')
    """
    spread = "" if half is None or half != half else f" ± {100 * half:.1f}"
    return f"{round(100 * value, 1) + 0.0:+.1f}{spread}"
