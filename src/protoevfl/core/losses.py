"""Self-supervised and soft-label losses, one number per group: inputs (..., B, d), result (...).

    NT-Xent   mean_i [ -s(i, i') / t + log sum_{j != i} exp( s(i, j) / t ) ]
    SimSiam   -mean_b cos( p_b, stop(z_b) )
    InfoNCE   mean_b [ -s(q_b, k_b) / t + log( exp(s(q_b, k_b) / t) + sum_j exp(s(q_b, u_j) / t) ) ]

s is the cosine, t the temperature; i goes over the 2B views, i' is the other view of its row; u_j
are the keys of the queue.

    >>> z = torch.eye(3)[None]
    >>> nt_xent(z, z, temperature=0.1).round(decimals=3)
    tensor([0.])
    >>> simsiam(z, z)
    tensor([-1.])
"""

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from protoevfl.core.transport import mean_rows, unit

SMALLEST = 1 / 80  # temperature from which exp(cos / t) fits into a float as it is


def nt_xent(z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    """SimCLR's loss of two views (..., B, d) of the same rows -> (...); 0 for a single row."""
    z = unit(torch.cat([z1, z2], -2))  # (..., 2B, d)
    if temperature >= SMALLEST:
        return cast(Tensor, _Contrast.apply(z, temperature))  # type: ignore[no-untyped-call]
    rows = z1.shape[-2]
    logits = z @ z.mT / temperature  # (..., 2B, 2B)
    itself = torch.eye(2 * rows, dtype=torch.bool, device=z.device)
    others = logits.masked_fill(itself, -torch.inf).logsumexp(-1).mean(-1)
    # entry (b, B + b): the two views of row b
    return others - logits.diagonal(rows, -2, -1).mean(-1)


class _Contrast(torch.autograd.Function):
    """NT-Xent of unit rows z (..., 2B, d) with its gradient by hand: less than half the time
    (docs/notes/speed.md).

        e_ij = exp(z_i . z_j / t), e_ii = 0    w_i = 1 / (2B t sum_j e_ij)
        dL/dz_i = sum_j e_ij (w_i + w_j) z_j - z_i' / (B t)    z_i' the other view of row i

    e is symmetric, so that no transposed copy is needed, and is computed in place.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, temperature: float) -> Tensor:
        scaled, rows = z / math.sqrt(temperature), z.shape[-2] // 2
        e = scaled @ scaled.mT  # (..., 2B, 2B)
        same = e.diagonal(rows, -2, -1).mean(-1)  # entry (b, B + b): the two views of row b
        e.diagonal(0, -2, -1).fill_(-torch.inf)
        total = e.exp_().sum(-1, keepdim=True)  # (..., 2B, 1)
        ctx.save_for_backward(z, e, total)
        ctx.scale = 1 / (2 * rows * temperature)
        return total.log().mean((-2, -1)) - same

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        z, e, total = ctx.saved_tensors
        weight = ctx.scale * gradients[0][..., None, None]  # (..., 1, 1)
        w = weight / total
        return w * (e @ z) + e @ (w * z) - 2 * weight * z.roll(z.shape[-2] // 2, -2), None


def simsiam(p: Tensor, z: Tensor) -> Tensor:
    """D(p, z) = -mean_b cos(p_b, stop(z_b)) -> (...); no gradient reaches z."""
    return -(unit(p) * unit(z.detach())).sum(-1).mean(-1)


def info_nce_queue(q: Tensor, k: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """MoCo's loss of queries q against own keys k (..., B, d) and a queue of unit rows (..., K, d)
    -> (...).

    Keys and queue get no gradient.
    """
    q, k = unit(q), unit(k.detach())
    positive = (q * k).sum(-1, keepdim=True) / temperature  # (..., B, 1)
    negative = q @ queue.detach().mT / temperature  # (..., B, K)
    return (torch.cat([positive, negative], -1).logsumexp(-1) - positive.squeeze(-1)).mean(-1)


def soft_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """mean_n -sum_z t_nz log softmax_z(l_nz) -> (...); logits, targets (..., N, Z), weights (...,
    N)."""
    return mean_rows(-(targets * logits.log_softmax(-1)).sum(-1), weights)
