"""Gated aggregation: how much each party counts for each row, over the parties that are present.

    gate        g_m,n = softmax_m( w_m . f^_m,n )   over the parties present
    head input  x_n   = concat_m( M g_m,n f^_m,n )

Axis order: parties before rows. f^ (..., M, N, d), w (..., M, d), present (M,) or (..., M, N) bool,
gates (..., M, N), head input (..., N, M d). A missing party leaves the softmax and its block is
zero, whatever its embeddings hold. w = 0 is the "no gate" ablation: every party present counts the
same.

    >>> f = torch.ones(2, 1, 3)
    >>> g = gate(f, torch.zeros(2, 3), present=torch.tensor([True, False]))
    >>> aggregate(f, g)
    tensor([[2., 2., 2., 0., 0., 0.]])
"""

import torch
from torch import Tensor


def gate(f: Tensor, w: Tensor, present: Tensor | None = None) -> Tensor:
    """g = softmax_m( w_m . f_m,n ) -> (..., M, N); columns sum to one, or are zero where no party
    is present."""
    if present is None:
        return (f @ w.unsqueeze(-1)).squeeze(-1).softmax(-2)
    here = present.unsqueeze(-1) if present.dim() == 1 else present  # (M, 1) or (..., M, N)
    # what a missing party holds must not reach a gradient
    f = torch.where(here.unsqueeze(-1), f, 0.0)
    logits = (f @ w.unsqueeze(-1)).squeeze(-1)  # (..., M, N)
    logits = torch.where(here, logits, torch.finfo(f.dtype).min)
    return logits.softmax(-2) * here


def aggregate(f: Tensor, gates: Tensor) -> Tensor:
    """concat_m( M g_m f_m ) -> (..., N, M d); a gate of 0 gives a zero block."""
    g = gates.unsqueeze(-1)  # (..., M, N, 1)
    blocks = f.shape[-3] * g * torch.where(g > 0, f, 0.0)  # (..., M, N, d)
    return blocks.movedim(-3, -2).flatten(-2)
