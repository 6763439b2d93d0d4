"""Bounded rows: x <- x min(1, c / ||x||), so that no row can weigh more than c in anything made of
it.

At the party it bounds what a row reveals (noise on embeddings needs it); at the label owner it
takes from a malicious party the means to single rows out by sending huge embeddings.

    >>> clip(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
"""

import torch
from torch import Tensor

from protoevfl.core.transport import unit


def clip(x: Tensor, bound: float) -> Tensor:
    """Rows (..., d) of norm at most `bound`; not-finite rows become 0."""
    x = torch.where(x.isfinite().all(-1, keepdim=True), x, 0.0)
    norm = torch.linalg.vector_norm(x.double(), dim=-1, keepdim=True)
    return torch.where(norm <= bound, x, unit(x) * bound)
