"""The class prior of a party's pool, estimated without labels and mixed with the other parties'
prior.

    E/M step      p_z <- mean_n softmax_z( s_nz + log p_z ),   p started uniform
    smoothing     p   <- (p + a) / (1 + a Z)
    mixed prior   p   <- gamma p^g + (1 - gamma) p,   gamma = N_rarest / N

scores s (..., N, Z), prior p (..., Z), global prior p^g (..., Z), gamma (...). Smoothing after each
step keeps every class alive: with a = 0 a class that once reaches prior 0 can never return.

    >>> scores = torch.tensor([[9.0, 0.0], [9.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    >>> p = estimate(scores, steps=20, smoothing=0.0)
    >>> p.round(decimals=2)
    tensor([0.7500, 0.2500])
    >>> gamma = mixing_ratio(pseudo_label_counts(scores, p))
    >>> mix(p, torch.tensor([0.5, 0.5]), gamma).round(decimals=2)
    tensor([0.6900, 0.3100])
"""

import torch
from torch import Tensor

from protoevfl.core.transport import forward_plan


def estimate(scores: Tensor, steps: int, smoothing: float, weights: Tensor | None = None) -> Tensor:
    """EM estimate of the prior -> (..., Z), sums to one; weights (..., N) >= 0 count rows more or
    less.

    Where all weights are 0 there is nothing to learn from and the prior stays uniform.
    """
    classes = scores.shape[-1]
    w = torch.ones_like(scores[..., 0]) if weights is None else weights.to(scores)
    total = w.sum(-1, keepdim=True)  # (..., 1)
    # (..., N)
    share = torch.where(total > 0, w / torch.where(total > 0, total, 1.0), 1 / w.shape[-1])
    learnt = (total > 0).to(scores)  # (..., 1)
    p = _uniform_like(scores)
    for _ in range(steps):
        p = (share.unsqueeze(-2) @ forward_plan(scores, p).exp()).squeeze(-2)  # (..., Z)
        p = _smooth(learnt * p + (1 - learnt) / classes, smoothing)
    return p


def _uniform_like(scores: Tensor) -> Tensor:
    """p_z = 1/Z -> (..., Z), for scores (..., N, Z)."""
    return torch.full_like(scores[..., 0, :], 1 / scores.shape[-1])


def _smooth(prior: Tensor, smoothing: float) -> Tensor:
    """(p + a) / (1 + a Z) -> (..., Z): every class gets at least a / (1 + a Z)."""
    return (prior + smoothing) / (1 + smoothing * prior.shape[-1])


def pseudo_label_counts(scores: Tensor, prior: Tensor, weights: Tensor | None = None) -> Tensor:
    """N_z = #{ n : argmax_z' pi(mu_z' | f_n) = z } -> (..., Z), rows counted by weights (..., N) if
    given."""
    best = (scores + prior.log().unsqueeze(-2)).argmax(-1, keepdim=True)  # (..., N, 1)
    ones = torch.ones_like(scores[..., :1]) if weights is None else weights.to(scores).unsqueeze(-1)
    return torch.zeros_like(scores).scatter_(-1, best, ones).sum(-2)


def mixing_ratio(counts: Tensor) -> Tensor:
    """gamma = N_rarest / N -> (...), at most 1/Z; counts (..., Z) of pseudo-labels; 0 where there
    are none."""
    total = counts.sum(-1)
    return counts.amin(-1) / torch.where(total > 0, total, 1)


def mix(local: Tensor, common: Tensor, gamma: Tensor | float) -> Tensor:
    """gamma p^g + (1 - gamma) p -> (..., Z); gamma (...) or a number."""
    g = gamma.unsqueeze(-1) if isinstance(gamma, Tensor) else gamma
    return g * common + (1 - g) * local
