"""How figures are written."""

import math

import pytest

from protoevfl.privacy.page_parts import percent


@pytest.mark.parametrize(
    ("value", "half", "shown"),
    [
        (None, None, "-"),
        (0.5, None, "50.0 %"),
        (0.5, math.nan, "50.0 %"),
        (1.0, 0.02, "100.0 ± 2.0 %"),
    ],
)
def test_an_interval_is_shown_where_there_is_one(
    value: float | None, half: float | None, shown: str
) -> None:
    assert percent(value, half) == shown
