"""Members of a pool: do the statistics that a party sent tell which rows are its own?

near      a row's distance to the nearest component mean; members of the pool lie nearer
auc       how often a member lies nearer than a row that is none: 0.5 is a coin
matched   share of the means that lie within a hundredth of a typical distance of one pool row:
          such a mean is that row
"""

import torch
from torch import Tensor

from protoevfl.messages import Statistics

MOST_ROWS = 4000
EXACT = 0.01


def told_apart(statistics: Statistics, inside: Tensor, outside: Tensor) -> dict[str, float]:
    """Figures of the attack.

    inside, outside   (n, d) embeddings of pool rows and of rows outside the pool, in the space of
                      the statistics (its first columns where the statistics have more)
    """
    width = min(inside.shape[1], statistics.means.shape[-1])
    used = statistics.weights.flatten() > 0
    means = statistics.means.flatten(0, -2)[used][:, :width].float()
    members, others = (rows[:MOST_ROWS, :width].float() for rows in (inside, outside))
    near, far = (torch.cdist(rows, means).amin(1) for rows in (members, others))
    ranks = (near[:, None] < far).double() + 0.5 * (near[:, None] == far)
    typical = torch.cdist(members, members).median().clamp(min=1e-9)
    exact = torch.cdist(means, members).amin(1) < EXACT * typical
    return {
        "means": float(len(means)),
        "auc": float(ranks.mean()),
        "matched": float(exact.double().mean()),
    }
