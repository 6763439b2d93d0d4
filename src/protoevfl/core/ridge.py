"""Kernel ridge regression in closed form: soft class targets, rows that count more or less, classes that count equally.

    k(a, b) = exp(-|a - b|^2 / s)                         s: median squared distance of some rows
    min_g  sum_i w_i |y_i - 1/Z - g(x_i)|^2 + penalty |g|_k^2
    g(x) = k(x, X) R (R k(X, X) R + penalty I)^-1 R (Y - 1/Z),   R = diag(sqrt w)
    p(z | x) = softmax_z( SCALE g(x) )

x (n, d) rows, Y (n, Z) targets, w (n,) weights. A class that no row stands for gets probability zero.

    >>> x, y = torch.tensor([[0.0], [1.0]]), torch.eye(2)
    >>> predict(fit(x, y, torch.ones(2), spread(x)), torch.tensor([[0.1], [0.9]])).argmax(1)
    tensor([0, 1])
"""

from dataclasses import dataclass

import torch
from torch import Tensor

PENALTY, SCALE = 0.3, 6.0


@dataclass(frozen=True)
class Ridge:
    """Rows x (n, d) and their coefficients (n, Z); `there` (Z,) are the classes some row stands for."""

    x: Tensor
    coefficients: Tensor
    there: Tensor
    spread: Tensor


def spread(x: Tensor) -> Tensor:
    """The median squared distance of different rows."""
    apart = torch.cdist(x, x)[torch.triu_indices(len(x), len(x), 1).unbind()]
    return apart.square().median().clamp(min=1e-12) if len(apart) else x.new_ones(())


def kernel(a: Tensor, b: Tensor, spread: Tensor) -> Tensor:
    """(n, d), (m, d) -> (n, m)."""
    return (-torch.cdist(a, b).square() / spread).exp()


def equal_classes(y: Tensor, weight: Tensor) -> Tensor:
    """Weights (n,) under which every class there is weighs the same, the mean weight kept over the classes."""
    total = weight @ y  # (Z,)
    there = total > 0
    factor = torch.where(there, total[there].mean() / total.clamp(min=1e-12), 0.0)
    return weight * (y @ factor)


def fit(x: Tensor, y: Tensor, weight: Tensor, spread: Tensor, penalty: float = PENALTY) -> Ridge:
    """The regression on rows x (n, d) with targets y (n, Z) and weights (n,)."""
    there = weight @ y > 0
    root = equal_classes(y, weight).sqrt()[:, None]
    system = root * kernel(x, x, spread) * root.T
    system.diagonal().add_(penalty)
    right = root * (y - 1 / y.shape[1])
    return Ridge(x, root * torch.cholesky_solve(right, torch.linalg.cholesky(system)), there, spread)


def predict(model: Ridge, x: Tensor, chunk: int = 4096) -> Tensor:
    """Class probabilities (m, Z) of rows x (m, d)."""
    parts = [kernel(some, model.x, model.spread) @ model.coefficients for some in torch.split(x, chunk)]
    return (SCALE * torch.cat(parts)).masked_fill(~model.there, -torch.inf).softmax(1)
