"""Geometry: everything lies within its drawing, and zero is always to be seen."""

from hypothesis import given
from hypothesis import strategies as st

from protoevfl.report import charts
from protoevfl.report.parts import Bar, Interval

FRACTION = st.floats(-1, 1)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_curves_stay_between_the_axes(points: list[tuple[float, float]]) -> None:
    for x, y in charts.places(points):
        assert charts.LEFT <= x <= charts.WIDTH - charts.RIGHT
        assert charts.TOP <= y <= charts.HEIGHT - charts.BOTTOM


@given(st.tuples(FRACTION, FRACTION, FRACTION))
def test_an_interval_and_zero_lie_on_the_line(numbers: tuple[float, float, float]) -> None:
    low, value, high = sorted(numbers)
    drawn = charts.interval(Interval("", "", value, low, high, "", ""))
    places = [drawn[name] for name in ("zero", "low", "value", "high")]
    assert all(0 <= place <= charts.LINE_WIDTH for place in places)
    assert drawn["low"] <= drawn["value"] <= drawn["high"]
    ticks = {text: place for place, text in drawn["ticks"]}
    assert ticks["0"] == drawn["zero"]
    assert 2 <= len(ticks) == len(drawn["ticks"]) <= 9


def test_a_bar_below_zero_ends_at_zero() -> None:
    drawn = charts.bar(Bar(-0.01, -0.02, 0.0, (-0.02, 0.02)))
    assert drawn.negative
    assert drawn.start + drawn.width == drawn.zero
