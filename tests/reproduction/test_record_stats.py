import math

import pytest

from protoevfl.reproduction import record_stats


@pytest.mark.parametrize("power", [-1.0, -0.5, -0.25, 0.0])
def test_exponent_of_a_constant_mean_is_recovered(power: float) -> None:
    """Gradient norms chosen so that their mean square up to T is exactly T ** power."""
    total, history = 0.0, []
    for t in range(1, 200):
        square = t * t**power - total
        total += square
        history.append({"phase": "rounds", "step": t, "gradient_norm": math.sqrt(max(square, 0.0))})
    assert record_stats.exponent({"history": history}, {}) == pytest.approx(power, abs=1e-6)


def test_exponent_needs_three_rounds() -> None:
    assert record_stats.exponent({"history": [{"gradient_norm": 1.0}] * 2}, {}) is None
    assert record_stats.exponent({}, {}) is None


def test_curve_leaves_out_what_is_not_a_number() -> None:
    history = [{"loss": 2.0}, {"loss": None}, {"loss": float("nan")}, {"prior": [1]}, {"loss": 1}]
    assert record_stats.curve({"history": history}, "loss") == [2.0, 1.0]


def test_power_law_against_numpy() -> None:
    import numpy as np

    values = np.random.default_rng(0).uniform(1, 2, size=20)
    fit = np.polyfit(np.log(np.arange(2, 21)), np.log(values[1:]), 1)
    assert record_stats.power_law(list(values)) == pytest.approx(tuple(fit))
    assert record_stats.power_law([1.0, 2.0]) is None
