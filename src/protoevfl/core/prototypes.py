"""Class prototypes: the class means of the aligned rows, carried from round to round.

    paper   mu_z <- mu_z + rho mean_z(f^)
    ema     mu_z <- (1 - rho) mu_z + rho mean_z(f^)

f (..., N, d), labels (..., N), mu and means (..., Z, d), counts (..., Z). Departs: the `ema` rule
is ours; without the decay the norm grows for ever and pseudo-labels get worse after a few rounds.

    >>> f, y = torch.tensor([[1.0, 1.0], [3.0, 1.0], [0.0, 5.0]]), torch.tensor([0, 0, 2])
    >>> means, counts = class_means(f, y, classes=3)
    >>> means
    tensor([[2., 1.],
            [0., 0.],
            [0., 5.]])
    >>> update(torch.ones(3, 2), means, counts, rho=0.5, rule="ema")
    tensor([[1.5000, 1.0000],
            [1.0000, 1.0000],
            [0.5000, 3.0000]])
"""

from typing import Literal

import torch
from torch import Tensor

Rule = Literal["paper", "ema"]


def membership(labels: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """One-hot labels -> (..., N, Z); a label outside 0..Z-1 (say -1, unlabelled) belongs to no
    class."""
    return (labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)).to(dtype)


def class_means(
    f: Tensor, labels: Tensor, classes: int, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """mean_z = sum_{n: y_n = z} w_n f_n / sum_{n: y_n = z} w_n -> means (..., Z, d), counts (...,
    Z).

    counts are the summed weights (numbers of rows without weights); an empty class has mean 0 and
    count 0.
    """
    member = membership(labels, classes, f.dtype)  # (..., N, Z)
    if weights is not None:
        member = member * weights.to(f).unsqueeze(-1)
    counts = member.sum(-2)  # (..., Z)
    # columns sum to one: no huge sums
    share = member / torch.where(counts > 0, counts, 1.0).unsqueeze(-2)
    return share.mT @ f, counts


def update(mu: Tensor, means: Tensor, counts: Tensor, rho: float, rule: Rule) -> Tensor:
    """The next prototypes -> (..., Z, d); an empty class (count 0) keeps its old one."""
    moved = (mu if rule == "paper" else (1 - rho) * mu) + rho * means
    return torch.where((counts > 0).unsqueeze(-1), moved, mu)
