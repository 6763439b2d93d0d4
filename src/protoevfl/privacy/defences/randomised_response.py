"""Label randomised response: keep a label with probability p, else any other class, equally likely.

    p = e^eps / (e^eps + Z - 1)      P(seen | y) / P(seen | y') <= e^eps

Done once, before anything is computed for release; a promise that does not grow with the number of
rounds.

    >>> round(keep_probability(3.0, 10), 3)
    0.691
"""

import math

import torch
from torch import Tensor

from protoevfl.privacy.defences.noise import Noise, digest


def keep_probability(epsilon: float, classes: int) -> float:
    """p = e^eps / (e^eps + Z - 1)."""
    return 1 / (1 + (classes - 1) * math.exp(-epsilon))


def randomise(labels: Tensor, classes: int, epsilon: float, noise: Noise) -> Tensor:
    """Labels (N,) after randomised response."""
    n = len(labels)
    u = noise.uniform(f"labels/{digest(labels)}", 2 * n).to(labels.device)
    shift = 1 + (u[n:] * (classes - 1)).long().clamp(max=classes - 2)  # 1..Z-1
    return torch.where(
        u[:n] < keep_probability(epsilon, classes), labels, (labels + shift) % classes
    )
