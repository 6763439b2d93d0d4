"""Rows of three well separated classes at two parties, for the tests of unseen classes and of the
batch."""

import torch
from torch import Tensor

from protoevfl.federation.owner import LabelOwner
from protoevfl.head import HeadSettings

M, D, Z = 2, 6, 3
QUICK = HeadSettings(members=2, hidden=16, epochs=30, batch=32, noise=0.1, lr=5e-3)


def rows(counts: list[int], seed: int, noise: float = 0.5) -> tuple[Tensor, Tensor]:
    """Rows of three well separated classes: embeddings (M, n, D) and labels (n,)."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(Z), torch.tensor(counts))
    means = 4 * torch.eye(Z, D).roll(1, 0).expand(M, Z, D)
    return means[:, labels] + noise * torch.randn(M, len(labels), D, generator=source), labels


def owner(labels: Tensor, **more: object) -> LabelOwner:
    return LabelOwner(labels, Z, tuple(range(M)), key=7, **more)  # type: ignore[arg-type]
