"""How alike rows are by what several partners sent of them, for the joint model of tables.

A set of partners is believed by factors of their features. The kernel of every set is made of the
same few products, partner by partner, so that features, which may be wide, are multiplied once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Sent = Sequence[NDArray[np.floating[Any]]]  # features (n, d) as each partner sent them
COLUMNS = 4096  # features multiplied at a time
MIX = 0.5  # share of the Gaussian kernel


@dataclass(frozen=True)
class Products:
    """Rows beside the anchors, partner by partner: all that a kernel needs to know of them."""

    inner: Floats  # (O, m, n) inner products with the anchors
    squares: Floats  # (O, m) squared lengths


@dataclass(frozen=True)
class Anchors:
    """The rows learnt from, as the partners sent them."""

    rows: Sent

    def products(self, features: Sent) -> Products:
        """In double precision, without a wide copy of the features."""
        inner, squares = [], []
        for sent, anchors in zip(features, self.rows, strict=True):
            products, lengths = np.zeros((len(sent), len(anchors))), np.zeros(len(sent))
            for start in range(0, sent.shape[1], COLUMNS):
                part = sent[:, start : start + COLUMNS].astype(np.float64)
                if part.any():  # a partner with few columns has zeros behind them
                    anchor_part = anchors[:, start : start + COLUMNS].astype(np.float64)
                    products += part @ anchor_part.T
                    lengths += (part**2).sum(1)
            inner.append(products)
            squares.append(lengths)
        return Products(np.stack(inner), np.stack(squares))


@dataclass(frozen=True)
class Kernel:
    """k(x, x') = (1 - mix) x . x' / length + mix exp(-|x - x'|^2 / distance): linear, and near rows
    alike; x are the features of all partners, each partner's times its factor."""

    factors: Floats  # (O,) squared
    squares: Floats  # (n,) squared lengths of the anchors
    distance: float  # median squared distance of the anchors
    length: float  # mean squared length of the anchors
    mix: float  # share of the Gaussian kernel

    @classmethod
    def of(cls, anchors: Products, factors: Floats, mix: float = MIX) -> "Kernel":
        """`anchors` are the products of the anchors with themselves."""
        squares = factors @ anchors.squares
        apart = _apart(squares, squares, np.tensordot(factors, anchors.inner, 1))
        pairs = apart[np.triu_indices(len(squares), 1)]
        distance = float(np.median(pairs)) if len(pairs) else 1.0
        return cls(factors, squares, distance + 1e-9, float(squares.mean()) + 1e-9, mix)

    def __call__(self, rows: Products) -> Floats:
        """(m, n)."""
        inner = np.tensordot(self.factors, rows.inner, 1)
        near = np.exp(-_apart(self.factors @ rows.squares, self.squares, inner) / self.distance)
        values: Floats = (1 - self.mix) * inner / self.length + self.mix * near
        return values


def _apart(rows: Floats, anchors: Floats, inner: Floats) -> Floats:
    """Squared distances (m, n) from squared lengths (m,), (n,) and inner products (m, n)."""
    apart: Floats = rows[:, None] + anchors - 2 * inner
    return apart
