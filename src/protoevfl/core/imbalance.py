"""How uneven classes are, within a party and between parties.

    Gamma = N_largest / N_smallest
    MID   = 1 - H(p) / ln Z            0: balanced, 1: a single class
    WCS   = cos(l_m, L)                1: the party has the class shares of all parties together

counts (Z,) of one party, or (M, Z) with row l_m for party m and L = sum_m l_m. Departs: the MID
printed in the paper has the wrong sign and factor; this one reproduces its Credit row.

    >>> gamma([40, 10]), round(mid([40, 10]), 3)
    (4.0, 0.278)
    >>> wcs([[40, 10], [40, 10]])
    tensor([1., 1.], dtype=torch.float64)
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Counts = Tensor | Sequence[float]
Table = Tensor | Sequence[Sequence[float]]


def gamma(counts: Counts) -> float:
    """Largest / smallest class; infinite when a class has no row, 1 when there are no rows at
    all."""
    c = torch.as_tensor(counts, dtype=torch.float64)
    largest, smallest = float(c.max()), float(c.min())
    if smallest == 0:
        return math.inf if largest > 0 else 1.0
    return largest / smallest


def mid(counts: Counts) -> float:
    """Multi-class imbalance degree 1 - H(p) / ln Z, natural logarithm; 0 for one class or no
    rows."""
    c = torch.as_tensor(counts, dtype=torch.float64)
    if len(c) < 2 or not float(c.sum()):
        return 0.0
    p = c / c.sum()
    entropy = -float(torch.special.xlogy(p, p).sum())
    return 1 - entropy / math.log(len(c))


def wcs(counts: Table) -> Tensor:
    """cos(l_m, L) of each party -> (M,); a party without rows has 0."""
    c = torch.as_tensor(counts, dtype=torch.float64)  # (M, Z)
    return torch.cosine_similarity(c, c.sum(0, keepdim=True), dim=1)
