"""Noisy prototypes: what the label owner may say about the classes in a party's own space.

    x_n   = unit( B^T (f_n - mean f) )               B (d, r): leading directions of the receiver's own embeddings
    S_z   = sum_{n: y_n = z} x_n + sigma N(0, I)     one Gaussian release of sums, (Z, r)
    mu_z  = mean f + scale B unit(S_z)

A row's label decides only which sum its vector of norm 1 joins, so changing one label moves S by at
most SENSITIVITY = sqrt(2), whatever the party sent: the promise needs no trust in the receiver. B,
mean and scale use no label, and no count is sent. Few directions (r) help twice: less noise for the
same promise, and fewer equations than rows. Which classes are shown at all (`shown`) is taken to be
public.

    >>> f, y = torch.eye(4).repeat(5, 1), torch.arange(4).repeat(5)
    >>> mu = release(f, y, torch.ones(4), lambda name, shape: torch.zeros(shape), sigma=1.0, rank=3)
    >>> (f[:4] @ mu.T).argmax(1).tolist()
    [0, 1, 2, 3]
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from protoevfl.core.prototypes import membership
from protoevfl.core.transport import unit

SENSITIVITY = math.sqrt(2)  # of the sums to one changed label


def space(f: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (d,), leading directions (d, r) and scale () of embeddings (N, d); no label is used."""
    f = f.double()
    mean = f.mean(0)
    _, _, directions = torch.linalg.svd(f - mean, full_matrices=False)
    basis = directions[:rank].T  # (d, r)
    return mean, basis, torch.linalg.vector_norm((f - mean) @ basis, dim=1).mean()


def coordinates(f: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    """x (N, r): rows of norm 1 in the leading directions; what the release sums."""
    return unit((f.double() - mean) @ basis)


def release(
    f: Tensor,
    labels: Tensor,
    shown: Tensor,
    noise: Callable[[str, tuple[int, ...]], Tensor],
    *,
    sigma: float,
    rank: int,
    name: str = "release",
) -> Tensor:
    """Prototypes (Z, d) for the party that sent f (N, d); zero where `shown` (Z,) is zero."""
    mean, basis, scale = space(f, min(rank, f.shape[1], len(f)))
    x = coordinates(f, mean, basis)  # (N, r)
    sums = membership(labels, len(shown), x.dtype).T @ x  # (Z, r)
    if sigma:
        sums = sums + sigma * noise(name, tuple(sums.shape)).to(sums)
    mu = mean + scale * unit(sums) @ basis.T  # (Z, d)
    return (mu * (shown > 0).to(mu)[:, None]).float()
