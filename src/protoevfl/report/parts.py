"""What a page is made of: sections of sentences, tables and figures, as plain values that the
template draws and escapes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from protoevfl.report.curves import Points

NOTHING = "–"


@dataclass(frozen=True)
class Bar:
    """A bar from zero to `value` with an interval, drawn in a cell; `low` and `high` bound the
    scale that all bars of a table share."""

    value: float
    low: float
    high: float
    scale: tuple[float, float]


@dataclass(frozen=True)
class Cell:
    """A cell of a table: text, with a bar or a shade from 0 to 1 behind it."""

    text: str
    bar: Bar | None = None
    shade: float | None = None


@dataclass(frozen=True)
class Table:
    """Column heads and lines; the first cell of a line names it. `words`: further columns that hold
    text, which stands at the left."""

    caption: str
    heads: tuple[str, ...]
    lines: Sequence[Sequence[str | Cell]]
    words: tuple[int, ...] = ()
    kind: str = field(default="table", init=False)


@dataclass(frozen=True)
class Series:
    """A curve of points between 0 and 1: `place` chooses the colour, `dashed` the comparison."""

    name: str
    points: Points
    place: int = 0
    dashed: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Chart:
    """Curves in a square from 0 to 100 %; `chance` is a straight line of comparison."""

    title: str
    description: str
    x: str
    y: str
    series: tuple[Series, ...]
    chance: Points = field(default_factory=list)
    kind: str = field(default="chart", init=False)


@dataclass(frozen=True)
class Interval:
    """One number with its interval on a line that shows zero; fractions."""

    title: str
    description: str
    value: float
    low: float
    high: float
    unit: str
    zero: str  # what stands at zero
    kind: str = field(default="interval", init=False)


@dataclass(frozen=True)
class Pictures:
    """Small pictures as data addresses, each with its words."""

    caption: str
    shown: tuple[tuple[str, str], ...]  # (address, words)
    kind: str = field(default="pictures", init=False)


@dataclass(frozen=True)
class Charts:
    """Charts, and a table, that stand side by side where there is room."""

    charts: tuple[Chart, ...]
    table: Table | None = None
    kind: str = field(default="charts", init=False)


@dataclass(frozen=True)
class Words:
    """A paragraph; what stands between backticks is code. "lead" is larger, "lead doubt" too,
    "caution" has a mark, "soft" is small; `head` runs in, in bold."""

    text: str
    manner: str = ""
    head: str = ""
    kind: str = field(default="words", init=False)


@dataclass(frozen=True)
class Terms:
    """Words and what they mean."""

    terms: tuple[tuple[str, str], ...]
    kind: str = field(default="terms", init=False)


@dataclass(frozen=True)
class Folded:
    """Parts behind a line that opens."""

    title: str
    parts: tuple["Part", ...]
    kind: str = field(default="folded", init=False)


Part = Words | Table | Charts | Interval | Pictures | Terms | Folded


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    parts: Sequence[Part]


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction in per cent, without the sign.

    >>> percent(0.9137), percent(None)
    ('91.4', '–')
    """
    return NOTHING if value is None else f"{100 * value:.{digits}f}"


def points(value: float) -> str:
    """A difference of fractions in points, with a true minus.

    >>> points(0.0617), points(-0.0123), points(-0.0001)
    ('6.2', '−1.2', '0.0')
    """
    rounded = round(100 * value, 1) + 0.0
    return f"{rounded:.1f}".replace("-", "−")


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["bank", "insurer", "telco"]), listed(["bank"])
    ('bank, insurer and telco', 'bank')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
