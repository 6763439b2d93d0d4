"""`Dataset`: features and labels of all rows with a fixed division into train and test rows."""

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
