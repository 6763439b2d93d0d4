"""k-means of each member's rows, all members and restarts as one batch."""

import torch
from torch import Tensor

from protoevfl.core import random as rnd


@torch.no_grad()
def k_means(x: Tensor, groups: int, keys: Tensor, steps: int = 15, restarts: int = 4) -> Tensor:
    """Cluster numbers (G, N) of rows x (G, N, d): the best of some restarts, each seeded by
    k-means++.

    >>> x = torch.tensor([[[0.0], [0.1], [5.0], [5.1]]])
    >>> found = k_means(x, 2, torch.tensor([1]))[0]
    >>> bool(found[0] == found[1] != found[2] == found[3])
    True
    """
    x = x.repeat_interleave(restarts, 0)  # (G*R, N, d)
    many = torch.stack([rnd.derive(keys, "restart", r) for r in range(restarts)], 1).flatten()
    centres = _seeds(x, groups, many)
    for _ in range(steps):
        # (G*R, N, K)
        near = torch.nn.functional.one_hot(torch.cdist(x, centres).argmin(-1), groups).to(x)
        count = near.sum(1)[..., None]
        centres = torch.where(count > 0, near.mT @ x / count.clamp(min=1), centres)
    distance, label = torch.cdist(x, centres).min(-1)  # (G*R, N)
    best = distance.square().sum(1).view(-1, restarts).argmin(1)  # (G,)
    return label.view(-1, restarts, label.shape[1])[torch.arange(len(best), device=x.device), best]


def _seeds(x: Tensor, groups: int, keys: Tensor) -> Tensor:
    """k-means++: each next centre is a row drawn in proportion to its squared distance to the
    nearest centre."""
    members = torch.arange(len(x), device=x.device)
    draws = rnd.uniform(keys, "seeds", 0, (groups,))  # (G*R, K)
    pick = (draws[:, 0] * x.shape[1]).long()
    centres = x[members, pick][:, None]  # (G*R, 1, d)
    for k in range(1, groups):
        weight = torch.cdist(x, centres).amin(-1).square().cumsum(1)  # (G*R, N)
        at = torch.searchsorted(weight, draws[:, k : k + 1] * weight[:, -1:], right=True).clamp(
            max=x.shape[1] - 1
        )
        centres = torch.cat([centres, x[members[:, None], at]], 1)
    return centres
