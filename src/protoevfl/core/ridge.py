"""Kernel ridge regression in closed form: soft class targets, rows that count more or less, classes
that count equally.

    k(a, b) = exp(-|a - b|^2 / s)                         s: median squared distance of some rows
    min_g  sum_i w_i |y_i - 1/Z - g(x_i)|^2 + penalty |g|_k^2
    g(x) = k(x, X) R (R k(X, X) R + penalty I)^-1 R (Y - 1/Z),   R = diag(sqrt w)
    p(z | x) = softmax_z( SCALE g(x) )

x (n, d) rows, Y (n, Z) targets, w (n,) weights. A class that no row stands for gets probability
zero. How sure the probabilities should be is told by the left-out prediction of each row, which the
closed form gives without refitting.

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
    """Rows x (n, d) and their coefficients (n, Z); `there` (Z,) are the classes some row stands
    for."""

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
    """Weights (n,) under which every class there is weighs the same, the mean weight kept over the
    classes."""
    total = weight @ y  # (Z,)
    there = total > 0
    factor = torch.where(there, total[there].mean() / total.clamp(min=1e-12), 0.0)
    return weight * (y @ factor)


def fit(x: Tensor, y: Tensor, weight: Tensor, spread: Tensor) -> Ridge:
    """The regression on rows x (n, d) with targets y (n, Z) and weights (n,)."""
    there = weight @ y > 0
    root = equal_classes(y, weight).sqrt()[:, None]
    right = root * (y - 1 / y.shape[1])
    dual = torch.cholesky_solve(right, torch.linalg.cholesky(_system(x, root, spread)))
    return Ridge(x, root * dual, there, spread)


def _system(x: Tensor, root: Tensor, spread: Tensor) -> Tensor:
    system = root * kernel(x, x, spread) * root.T
    system.diagonal().add_(PENALTY)
    return system


def predict(model: Ridge, x: Tensor, chunk: int = 4096) -> Tensor:
    """Class probabilities (m, Z) of rows x (m, d)."""
    parts = [
        kernel(rows, model.x, model.spread) @ model.coefficients for rows in torch.split(x, chunk)
    ]
    return (SCALE * torch.cat(parts)).masked_fill(~model.there, -torch.inf).softmax(1)


def _left_out(x: Tensor, y: Tensor, spread: Tensor) -> Tensor:
    """g (n, Z) at each row x (n, d) of the regression on all the others: residual / diagonal of the
    inverse."""
    root = equal_classes(y, y.new_ones(len(y))).sqrt()[:, None]
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(_system(x, root, spread)))
    target = y - 1 / y.shape[1]
    return target - inverse @ (root * target) / (inverse.diagonal()[:, None] * root)


def sureness(x: Tensor, y: Tensor, spread: Tensor) -> Tensor:
    """The scale, relative to SCALE, at which left-out predictions of rows x (n, d) with labels y
    (n, Z) are likeliest.

    Chosen from a grid between a quarter and four; classes count equally.
    """
    factors = torch.logspace(-2, 2, 33, base=2, dtype=x.dtype, device=x.device)
    there, weight = y.sum(0) > 0, equal_classes(y, y.new_ones(len(y)))
    logits = (
        SCALE * _left_out(x, y, spread).masked_fill(~there, -torch.inf) * factors[:, None, None]
    )
    likely = torch.where(y > 0, logits.log_softmax(-1), 0.0).sum(-1) @ weight  # (33,)
    return factors[likely.argmax()]


def as_sure(p: Tensor, confidence: Tensor) -> Tensor:
    """Probabilities (n, Z) sharpened or flattened until the likeliest class has this probability on
    average."""
    logits, low, high = p.log(), p.new_tensor(0.05), p.new_tensor(20.0)
    for _ in range(30):
        middle = (low * high).sqrt()
        more = (middle * logits).softmax(1).amax(1).mean() < confidence
        low = torch.where(more, middle, low)
        high = torch.where(more, high, middle)
    return (low * logits).softmax(1)
