"""What Gaussian noise promises, in closed form (mu-GDP, Dong, Roth and Su 2019).

    mu        = sqrt(releases) sensitivity / sigma
    delta(e)  = Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2)         epsilon: its inverse at a given delta
    guess     = integral phi(x - d) Phi(x)^(Z-1) dx                  d = sqrt(releases) length / sigma

`guess` is the plain-language side: the best possible rate of right guesses of one label by somebody
who knows all other labels and takes the Z classes to be equally likely; length is the norm of the
row's vector. No attack, passive or malicious, beats it.

    >>> round(epsilon(1.0, 1e-5), 2), round(guess(0.0, 10), 3)
    (4.38, 0.1)
"""

import math

import numpy as np


def mu(sigma: float, sensitivity: float, releases: int = 1) -> float:
    """The mu of Gaussian differential privacy; infinite without noise."""
    if releases == 0:
        return 0.0
    return math.sqrt(releases) * sensitivity / sigma if sigma > 0 else math.inf


def delta(mu: float, epsilon: float) -> float:
    """Phi(-e/mu + mu/2) - e^e Phi(-e/mu - mu/2); the second term in logarithms, so that it cannot
    overflow."""
    from scipy.special import log_ndtr

    first = float(log_ndtr(-epsilon / mu + mu / 2))
    second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return math.exp(first) - math.exp(min(second, first))


def epsilon(mu: float, at_delta: float) -> float:
    """The smallest epsilon with delta(epsilon) <= at_delta, by bisection."""
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    low = 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / at_delta)) + 1
    if delta(mu, low) <= at_delta:
        return 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(mu, middle) > at_delta else (low, middle)
    return high


def guess(distance: float, classes: int) -> float:
    """Best rate of right guesses among `classes` equally likely labels at this distance; 1/Z at
    0."""
    from scipy.special import log_ndtr

    if math.isinf(distance):
        return 1.0
    x = np.linspace(-10.0, 10.0 + distance, 20001)
    density = np.exp(-0.5 * (x - distance) ** 2 + (classes - 1) * log_ndtr(x)) / math.sqrt(
        2 * math.pi
    )
    return float(np.trapezoid(density, x))


def randomised_response_guess(epsilon: float, classes: int) -> float:
    """The same for randomised response: e^eps / (e^eps + Z - 1)."""
    return 1 / (1 + (classes - 1) * math.exp(-epsilon))
