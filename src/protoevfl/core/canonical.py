"""What several parties' embeddings of the same rows have in common: canonical correlations of more
than two sets.

    C_m = X_m' X_m / n                     scatter of party m's centred embeddings X_m (n, d)
    W_m = (C_m + ridge mean(eig C_m) I)^(-1/2)
    (1/n) Z' Z v = e v,   Z = [X_1 W_1 ... X_M W_M]
    map of party m:  W_m v_m (e - 1)       over the directions v with e > 1

e is 1 for a direction that only one party sees and M for one on which all agree (Kettenring 1971,
"MAXVAR"): what one party sees alone leaves, what several see stays, the more the better they agree.
No label enters.

    >>> same = torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
    >>> own = torch.randn(2, 500, 1, generator=torch.Generator().manual_seed(1))
    >>> # each party: a common column and, larger, one of its own
    >>> f = torch.cat([same.expand(2, -1, -1), 9 * own], -1)
    >>> x = (f @ directions(f))[0]
    >>> bool(torch.corrcoef(torch.stack([x[:, 0], same[:, 0]]))[0, 1].abs() > 0.99)
    True
"""

import torch
from torch import Tensor

RIDGE, MOST, COMPONENTS = 0.01, 200, 300


def directions(f: Tensor, ridge: float = RIDGE, most: int = MOST) -> Tensor:
    """Maps (M, d, k) of the parties into a common space, k <= most, from the same rows at each: f
    (M, n, d)."""
    n = f.shape[1]
    # eigh in single precision gives up where many eigenvalues are equal
    x = (f - f.mean(1, keepdim=True)).double()
    value, vector = torch.linalg.eigh(x.mT @ x / n)  # (M, d), (M, d, d)
    value = value.clamp(min=0)
    scale = (value + ridge * value.mean(-1, keepdim=True)).rsqrt()
    # nothing varies there
    scale = torch.where(value > 1e-6 * value.amax(-1, keepdim=True), scale, 0.0)
    white = vector * scale[:, None]  # (M, d, d)
    z = (x @ white).movedim(0, 1).flatten(1)  # (n, M*d)
    value, vector = _largest(z, most)
    shared = (value / n - 1).clamp(min=0)
    shared = torch.where(shared.any(), shared, 1.0)  # one party, or nothing in common: all of it
    maps: Tensor = white @ (vector * shared).view(len(f), f.shape[-1], -1)
    return maps.to(f.dtype)


def principal(x: Tensor, most: int = COMPONENTS) -> Tensor:
    """The first principal directions (D, k) of rows x (n, D), orthonormal, k <= most."""
    components = _largest((x - x.mean(0)).double(), most)[1]
    return components.to(x.dtype)


def _largest(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues (k,), falling, of x'x and their vectors (D, k); zeros beyond the rank
    of x (n, D)."""
    wide = x.shape[1] > len(x)
    value, vector = torch.linalg.eigh(x @ x.T if wide else x.T @ x)  # of the smaller side
    value, vector = value.flip(0)[:most], vector.flip(1)[:, :most]
    if wide:
        scale = torch.where(value > 1e-9 * value[:1], value.clamp(min=1e-300).rsqrt(), 0.0)
        vector = x.T @ (vector * scale)
    return value, vector
