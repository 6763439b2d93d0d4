"""One party's columns as numbers.

number:    x' = (g(x) - mean) / std, mean and std over the party's own training rows (pool and aligned) only;
           g(x) = sign(x) log(1 + |x|) for heavy-tailed amounts (capital gain and loss, credit limit, bills,
           payments), else g(x) = x. A missing number becomes the mean, with a 0/1 column beside it that says so.
category:  one-hot over the values of the data set's train rows, `?` (missing) having its own column; a value
           that no train row has is all zero. The width is thus the same for every split seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.rows.dataset import Array, Column


@dataclass(frozen=True)
class Encoded:
    """All rows of one party's columns; `spans[c]` is the range [start, end) that source column c became."""

    values: Tensor  # (n, D) float32
    spans: tuple[tuple[int, int], ...]


def encode_table(columns: Sequence[Column], fit_rows: Tensor) -> Encoded:
    """Encodes every row; scalers see `fit_rows` only.

    >>> table = [Column("age", np.array([1.0, 3.0, 9.0])), Column("sex", np.array([0, 1, -1]), ("f", "m"))]
    >>> encoded = encode_table(table, torch.tensor([0, 1]))
    >>> encoded.values.tolist(), encoded.spans
    ([[-1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [7.0, 0.0, 0.0]], ((0, 1), (1, 3)))
    """
    rows = fit_rows.numpy()
    blocks = [_one_hot(c) if c.categories is not None else _scaled(c, rows) for c in columns]
    ends = np.cumsum([block.shape[1] for block in blocks]).tolist()
    return Encoded(
        values=torch.from_numpy(np.concatenate(blocks, axis=1)),
        spans=tuple(zip([0, *ends[:-1]], ends, strict=True)),
    )


def _one_hot(column: Column) -> Array:
    width = len(column.categories or ())
    hot: Array = column.values[:, None] == np.arange(width)  # (n, width)
    return hot.astype(np.float32)


def _scaled(column: Column, rows: Array) -> Array:
    x = np.sign(column.values) * np.log1p(np.abs(column.values)) if column.log else column.values
    if np.isinf(x).any():
        raise UserError(f"column '{column.name}' holds an infinite value; clean it or leave the column out")
    missing = np.isnan(x)
    own = x[rows][~missing[rows]]
    mean, std = (own.mean(), own.std()) if len(own) else (0.0, 0.0)
    scaled = (np.where(missing, mean, x) - mean) / (std if std > 0 else 1.0)
    parts = [scaled, missing] if missing.any() else [scaled]
    return np.stack(parts, axis=1).astype(np.float32)  # (n, 1) or (n, 2)
