"""Closed forms: known values, inverses, and the guess bound against simulation."""

import math

import pytest
import torch

from protoevfl.privacy import bounds


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0, 20.0])
def test_epsilon_inverts_delta(mu: float) -> None:
    epsilon = bounds.epsilon(mu, 1e-5)
    assert math.isclose(bounds.delta(mu, epsilon), 1e-5, rel_tol=1e-4)


@pytest.mark.parametrize(
    ("kappa", "expected"), [(0.01, 222_828), (0.05, 9_365), (0.1, 2_482), (0.2, 690)]
)
def test_the_papers_noise_on_embeddings_is_no_protection(kappa: float, expected: float) -> None:
    """Rows of norm 1, any row may be replaced by any other, 11 uploads."""
    assert math.isclose(bounds.epsilon(bounds.mu(kappa, 2.0, 11), 1e-5), expected, rel_tol=0.01)


@pytest.mark.parametrize(
    ("rows", "kappa", "expected"), [(20, 0.1, 30), (20, 0.2, 12), (100, 0.1, 4.1), (100, 0.2, 1.9)]
)
def test_the_papers_noise_on_prototypes(rows: int, kappa: float, expected: float) -> None:
    sensitivity = 2 * math.sqrt(2) / rows  # a label leaves one mean of unit rows and joins another
    assert math.isclose(
        bounds.epsilon(bounds.mu(kappa, sensitivity, 11), 1e-5), expected, rel_tol=0.03
    )


@pytest.mark.parametrize("distance", [0.0, 0.3, 1.0, 4.0])
def test_guess_is_the_rate_of_the_best_guess(distance: float) -> None:
    """Monte Carlo: one of ten coordinates is shifted, the largest is guessed."""
    noise = torch.randn(
        100_000, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    noise[:, 3] += distance
    rate = float((noise.argmax(1) == 3).double().mean())
    assert abs(rate - bounds.guess(distance, 10)) < 0.006


def test_ends_of_the_scale() -> None:
    assert bounds.mu(0.0, 1.0) == math.inf
    assert bounds.epsilon(math.inf, 1e-5) == math.inf
    assert bounds.epsilon(0.0, 1e-5) == 0.0
    assert bounds.mu(0.0, 1.0, releases=0) == 0.0
    assert bounds.guess(math.inf, 10) == 1.0
    assert math.isclose(bounds.randomised_response_guess(0.0, 4), 0.25)
