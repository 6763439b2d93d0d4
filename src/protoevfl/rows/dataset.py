"""`Dataset`: features and labels of all rows with a fixed division into train and test rows; and
which views or columns each party holds of it.

Images of four quadrants and tables (columns cut in four parts, in their order) are dealt in pairs
of parts: (0,1) (2,3) (0,2) (1,3) for the paper's four parties, then (0,3) (1,2); the seventh and
eighth party hold the first two pairs again, because there are only six. Twelve camera views are
dealt evenly where 12 / M is whole (four parties: 0-2, 3-5, 6-8, 9-11); else three neighbouring
views per party, starts spread evenly around the circle, so that neighbours overlap and all twelve
are held. Party 0 is the active one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protoevfl.errors import UserError

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Dataset:
    """Features and labels of all rows, and which of them are train and test rows."""

    name: str
    class_names: tuple[str, ...]
    features: Any  # images: (n, views, H, W) uint8; tables: a pyarrow Table, categories as text
    labels: Tensor  # (n,) int64
    train: Tensor  # (n_train,) int64 row numbers
    test: Tensor  # (n_test,) int64 row numbers

    @property
    def classes(self) -> int:
        """Z, the number of classes."""
        return len(self.class_names)

    @property
    def views(self) -> int:
        """How many views (images) or columns (tables) there are to deal out to parties."""
        return int(self.features.shape[1])

    def __post_init__(self) -> None:
        if (
            self.labels.numel()
            and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < self.classes
        ):
            raise UserError(f"{self.name}: labels must lie in 0..{self.classes - 1}")


def quadrants(images: Array) -> Tensor:
    """(n, 2h, 2w) -> (n, 4, h, w): top left, top right, bottom left, bottom right.

    >>> quadrants(np.arange(4, dtype=np.uint8).reshape(1, 2, 2)).flatten().tolist()
    [0, 1, 2, 3]
    """
    n, height, width = images.shape
    # (n, 2, 2, h, w)
    parts = images.reshape(n, 2, height // 2, 2, width // 2).transpose(0, 1, 3, 2, 4)
    return torch.from_numpy(np.ascontiguousarray(parts).reshape(n, 4, height // 2, width // 2))


def held_out(labels: Array, share: float) -> tuple[Tensor, Tensor]:
    """Train and test rows: `share` of each class, the same rows on every machine (numpy Generator,
    seed 0)."""
    rng = np.random.default_rng(0)
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        test[rows[: round(share * len(rows))]] = True
    return torch.from_numpy(np.flatnonzero(~test)), torch.from_numpy(np.flatnonzero(test))


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
        return _circle_views(parties)
    if dataset.views < 4:
        raise UserError(
            f"{dataset.name} has {dataset.views} columns; at least 4 are needed to cut four parts"
        )
    return _pair_views(dataset.views, parties)


def _pair_views(views: int, parties: int) -> list[list[int]]:
    """Two of four parts a party.

    >>> _pair_views(8, 3)
    [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 4, 5]]
    """
    parts = [part.tolist() for part in np.array_split(np.arange(views), 4)]
    return [parts[a] + parts[b] for a, b in PAIRS[:parties]]


def _circle_views(parties: int, views: int = 12) -> list[list[int]]:
    """Neighbouring camera views, as many for each party.

    >>> _circle_views(6)[1], _circle_views(8)[7]
    ([2, 3], [10, 11, 0])
    """
    width = views // parties if views % parties == 0 else 3
    return [[(m * views // parties + i) % views for i in range(width)] for m in range(parties)]
