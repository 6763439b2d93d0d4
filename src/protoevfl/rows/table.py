"""What one party holds, and the labels: `PartyTable` and `Labels`."""

from dataclasses import dataclass

import torch
from torch import Tensor

from protoevfl.errors import UserError


@dataclass(frozen=True)
class PartyTable:
    """One party's rows: images (c, H, W) uint8 or columns (D,) float32."""

    name: str
    pool: Tensor  # (N_u, ...) unaligned rows of its own
    aligned: Tensor  # (N_a, ...) in the order common to all parties
    query: Tensor  # (n_q, ...) rows to predict, in the order common to all parties
    # tables: [start, end) of each source column; images: None
    spans: tuple[tuple[int, int], ...] | None = None
    numbers: tuple[int, ...] = ()  # tables: features that are numbers, not 0/1
    # (n_f, ...) rows shared with the active party and not with everybody
    further: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.pool.shape[1:])

    def __post_init__(self) -> None:
        if self.further is None:
            object.__setattr__(self, "further", self.aligned[:0])
        for part in (self.aligned, self.query, self.further):
            assert part is not None
            if part.shape[1:] != self.pool.shape[1:] or part.dtype != self.pool.dtype:
                raise UserError(
                    f"{self.name}: pool, aligned and query rows must have the same columns"
                )
        for what, part in (("pool", self.pool), ("aligned", self.aligned), ("query", self.query)):
            if part.is_floating_point() and not torch.isfinite(part).all():
                raise UserError(
                    f"{self.name}: its {what} rows hold a value that is not finite; clean them "
                    "first"
                )


@dataclass
class OwnRows:
    """The active party's own rows as its encoder left them: what its own model learns from.

    First the rows shared with all parties, then those shared with some (`Further`), then the rest.
    """

    rows: Tensor  # (n, ...)
    labels: Tensor  # (n,), -1 where unknown
    query: Tensor  # (n_q, ...) its view of the rows to be predicted
    shared_rows: int  # how many of `rows` some other party has


@dataclass
class Further:
    """Rows the active party shares with some of the others, not with all of them."""

    labels: Tensor  # (F,), -1 where unknown
    shared: Tensor  # (M, F) bool: which party has the row; the active party has all


@dataclass(frozen=True)
class Labels:
    """The active party's labels, and labels that exist in a simulation only (to measure, never to
    train)."""

    classes: int  # Z
    aligned: Tensor  # (N_a,) int64
    query: Tensor  # (n_q,) int64, simulation only
    pools: tuple[Tensor, ...] = ()  # M x (N_u,) int64, simulation only
    unseen: tuple[int, ...] = ()  # classes declared to have no label
    rare: tuple[int, ...] = ()  # classes declared to have few

    def __post_init__(self) -> None:
        for labels in (self.aligned, self.query, *self.pools):
            if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
                raise UserError(f"labels must lie in 0..{self.classes - 1}")
        if torch.isin(self.aligned, torch.tensor(self.unseen, dtype=torch.int64)).any():
            raise UserError("a class declared unseen has an aligned label")
