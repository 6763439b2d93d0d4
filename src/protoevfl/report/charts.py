"""The page's drawings as geometry: the template writes the SVG, the style sheet colours it.

A chart is 360 wide, so that on a phone its letters keep their size. Positions are in these units.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from protoevfl.report.curves import Points
from protoevfl.report.parts import Bar, Interval

WIDTH, HEIGHT = 360, 300
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 46
TICKS = (0, 25, 50, 75, 100)
BAR_WIDTH = 100
LINE_WIDTH = 340  # of the drawing of an interval, between its margins


def across(share: float) -> float:
    """The place of a fraction on the horizontal axis."""
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def up(share: float) -> float:
    """The same on the vertical axis."""
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def path(points: Points) -> str:
    """The points of a curve as an SVG polyline takes them."""
    return " ".join(f"{across(x)},{up(y)}" for x, y in points)


def places(points: Points) -> list[tuple[float, float]]:
    return [(across(x), up(y)) for x, y in points]


@dataclass(frozen=True)
class DrawnBar:
    """Places between 0 and BAR_WIDTH."""

    zero: float
    start: float
    width: float
    low: float
    high: float
    negative: bool


def bar(value: Bar) -> DrawnBar:
    """
    >>> bar(Bar(0.02, 0.01, 0.03, (-0.01, 0.03)))
    DrawnBar(zero=25.0, start=25.0, width=50.0, low=50.0, high=100.0, negative=False)
    """
    first, last = value.scale

    def place(number: float) -> float:
        return round(BAR_WIDTH * (number - first) / (last - first), 1)

    zero, end = place(0.0), place(value.value)
    start = min(zero, end)
    width = round(abs(end - zero), 1)
    return DrawnBar(zero, start, width, place(value.low), place(value.high), value.value < 0)


def interval(value: Interval) -> dict[str, Any]:
    """Places of zero, ticks, ends and the number itself on a line of LINE_WIDTH."""
    low, high = min(0.0, value.low), max(0.0, value.high)
    span = max(high - low, 0.01)
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if span / s <= 7)
    first = step * _floor(low / step)
    last = step * -_floor(-(low + span) / step)

    def place(number: float) -> float:
        return round(20 + (LINE_WIDTH - 40) * (number - first) / (last - first), 1)

    count = round((last - first) / step)
    ticks = [first + i * step for i in range(count + 1)]
    return {
        "ticks": [(place(tick), _signed(tick)) for tick in ticks],
        "zero": place(0.0),
        "low": place(value.low),
        "high": place(value.high),
        "value": place(value.value),
    }


def _signed(tick: float) -> str:
    """A tick in points; zero has no sign."""
    whole = round(100 * tick)
    return f"{whole:+d}".replace("-", "−") if whole else "0"


def _floor(number: float) -> int:
    """Rounded down, where rounding errors of a whole number do not count."""
    return int((number + 1e-9) // 1)


DRAWN: Mapping[str, int | float | tuple[int, ...] | Callable[..., Any]] = {
    "width": WIDTH,
    "height": HEIGHT,
    "left": LEFT,
    "right": WIDTH - RIGHT,
    "top": TOP,
    "bottom": HEIGHT - BOTTOM,
    "ticks": TICKS,
    "line_width": LINE_WIDTH,
    "bar_width": BAR_WIDTH,
    "across": across,
    "up": up,
    "path": path,
    "places": places,
    "bar": bar,
    "interval": interval,
}
