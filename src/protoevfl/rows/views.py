"""Which views or columns each party holds.

Images of four quadrants and tables (columns cut in four parts, in their order) are dealt in pairs
of parts: (0,1) (2,3) (0,2) (1,3) for the paper's four parties, then (0,3) (1,2); the seventh and
eighth party hold the first two pairs again, because there are only six. Twelve camera views are
dealt evenly where 12 / M is whole (four parties: 0-2, 3-5, 6-8, 9-11); else three neighbouring
views a party, starts spread evenly around the circle, so that neighbours overlap and all twelve are
held. Party 0 is the active one.
"""

import numpy as np
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.rows.dataset import Dataset

PAIRS = ((0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2), (0, 1), (2, 3))
MOST_PARTIES = len(PAIRS)


def party_views(dataset: Dataset, parties: int) -> list[list[int]]:
    """The indices into the view axis (images) or the columns (tables) that each of M = 2..8 parties
    holds."""
    if not 2 <= parties <= MOST_PARTIES:
        raise UserError(
            f"{dataset.name} can be divided between 2 to {MOST_PARTIES} parties, not {parties}"
        )
    if dataset.views == 12 and isinstance(dataset.features, Tensor):
        return circle_views(parties)
    if dataset.views < 4:
        raise UserError(
            f"{dataset.name} has {dataset.views} columns; at least 4 are needed to cut four parts"
        )
    return pair_views(dataset.views, parties)


def pair_views(views: int, parties: int) -> list[list[int]]:
    """Two of four parts a party.

    >>> pair_views(8, 3)
    [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 4, 5]]
    """
    parts = [part.tolist() for part in np.array_split(np.arange(views), 4)]
    return [parts[a] + parts[b] for a, b in PAIRS[:parties]]


def circle_views(parties: int, views: int = 12) -> list[list[int]]:
    """Neighbouring camera views, as many for each party.

    >>> circle_views(6)[1], circle_views(8)[7]
    ([2, 3], [10, 11, 0])
    """
    width = views // parties if views % parties == 0 else 3
    return [[(m * views // parties + i) % views for i in range(width)] for m in range(parties)]
