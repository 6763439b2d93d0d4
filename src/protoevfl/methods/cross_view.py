"""FedCVT's arithmetic at the label owner: three heads a pair of parties, estimates of what the
other side would say.

A pair is the active party a and one other party b. Representations r = [u, c] are a unique and a
common half, width 2d.

    estimate of b from a row of a:   u^_b = softmax(u_a U_a^T / sqrt d) U_b      c^_b = softmax(c_a C_b^T / sqrt d) C_b

with U, C of the aligned rows of the batch. Heads: joint on [r_a, r_b], guest on r_a, host on r_b. A
pool row is used where the three heads (the missing side estimated) agree with confidence. Every
tensor has a leading axis E of models.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core.losses import soft_cross_entropy
from protoevfl.core.transport import unit


def estimate(query: Tensor, own: Tensor, other: Tensor, leave_out: bool = False) -> Tensor:
    """The other side's r (..., n, 2d) for rows `query` (..., n, 2d), by attention over aligned rows
    own, other.

    With `leave_out` the rows are the aligned ones themselves and a row does not see itself.
    """
    (uq, cq), (u, _), (v, c) = query.chunk(2, -1), own.chunk(2, -1), other.chunk(2, -1)
    return torch.cat([_attend(uq, u, v, leave_out), _attend(cq, c, c, leave_out)], -1)


def _attend(q: Tensor, k: Tensor, v: Tensor, leave_out: bool) -> Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (..., n, B)
    if leave_out and scores.shape[-1] > 1:
        scores = scores.masked_fill(
            torch.eye(scores.shape[-1], dtype=torch.bool, device=q.device), -torch.inf
        )
    out: Tensor = scores.softmax(-1) @ v
    return out


def agreement(logits: Tensor, thresholds: tuple[float, float, float]) -> tuple[Tensor, Tensor]:
    """Pseudo-labels and whether they count, both (E, P, B), from logits (3, E, P, B, Z)."""
    sure, label = logits.detach().softmax(-1).max(-1)  # (3, E, P, B)
    bar = torch.tensor(thresholds, device=logits.device).view(3, 1, 1, 1)
    return label[0], (sure >= bar).all(0) & (label == label[0]).all(0)


def apart(r: Tensor) -> Tensor:
    """How far unique and common halves overlap: mean squared cosine -> (E,)."""
    u, c = r.chunk(2, -1)
    return (unit(u) * unit(c)).sum(-1).square().flatten(1).mean(1)


def alike(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared distance -> (E,)."""
    return (a - b).square().flatten(1).mean(1)


def supervised(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the three heads -> (E,); logits (3, E, P, B, Z), targets (E, B, Z)."""
    wanted = targets[None, :, None].expand_as(logits)
    return soft_cross_entropy(logits, wanted).sum(0).mean(-1)


def pseudo_labelled(logits: Tensor, label: Tensor, counts: Tensor) -> Tensor:
    """The same for pool rows with pseudo-labels (E, P, B), those that count only -> (E,)."""
    # (3, E, P, B)
    each = F.cross_entropy(logits.movedim(-1, 1), label.expand(3, *label.shape), reduction="none")
    return (each * counts).mean(-1).sum(0).mean(-1)
