"""Self-supervised training of a party's extractor on its own rows: two views of a row should embed
alike (SimCLR).

No byte crosses. Images: affine moves, brightness, noise, an erased patch. Tables: columns replaced
by draws from their own marginals (SCARF). The contrast is the NT-Xent loss on the extractor's
output itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor

from protoevfl import distributed
from protoevfl.core import augment, losses
from protoevfl.core import random as rnd
from protoevfl.federation.party import Cohort
from protoevfl.fit import fit
from protoevfl.models import inputs


@dataclass(frozen=True)
class WarmUpSettings:
    epochs: int = 40
    batch: int = 256
    lr: float = 1e-3
    weight_decay: float = 1e-4
    temperature: float = 0.2
    strength: float = 0.6  # of image views
    corruption: float = 0.5  # share of table columns replaced


class ViewSettings(Protocol):
    """How strong random views are."""

    @property
    def strength(self) -> float: ...
    @property
    def corruption(self) -> float: ...


Views = Callable[[Tensor, rnd.Counter], Tensor]  # (rows (G, B), step) -> two views (G, 2B, ...)


def own_rows(cohort: Cohort) -> Tensor:
    """All rows of the party, pool and aligned, (G, n, ...); dealt out where the pool is."""
    pool: Tensor | distributed.Dealt = cohort.rows.pool
    if isinstance(pool, distributed.Dealt):
        return cast(Tensor, pool.followed_by(cohort.rows.aligned))
    return torch.cat([pool, cohort.rows.aligned], 1)


def whole_rows(cohort: Cohort) -> Tensor:
    """The same on every process, where the pool is dealt out."""
    rows: Tensor | distributed.Dealt = own_rows(cohort)
    return rows.whole(lambda part: part) if isinstance(rows, distributed.Dealt) else rows


def gather(rows: Tensor | distributed.Dealt, index: Tensor) -> Tensor:
    """rows (G, n, ...) at index (G, B) -> (G, B, ...)."""
    if isinstance(rows, distributed.Dealt):
        return rows.take(index)
    members = torch.arange(len(rows), device=rows.device)[:, None]
    return rows[members, index]


def two_views(
    cohort: Cohort,
    rows: Tensor,
    keys: Tensor,
    settings: ViewSettings,
    changes: augment.ImageViews = augment.DEFAULT_VIEWS,
    copies: int = 2,
) -> Views:
    """A function that draws two views (or `copies`) of a batch, side by side on the batch axis."""
    spans = cohort.rows.spans
    if spans is not None:
        owner = augment.span_index([b - a for a, b in spans], rows.device)

    def make(index: Tensor, step: rnd.Counter) -> Tensor:
        x = inputs(gather(rows, index))
        twice = torch.cat([x] * copies, 1)
        if spans is None:
            return augment.augment_images(twice, keys, "view", step, settings.strength, changes)
        return augment.corrupt_columns(twice, rows, owner, keys, "view", step, settings.corruption)

    return make


def warm_up(cohort: Cohort, settings: WarmUpSettings) -> Tensor:
    """Trains the cohort's network in place; returns the loss of each epoch (epochs, G)."""
    rows, keys = own_rows(cohort), rnd.derive(cohort.keys, "warm-up")
    views = two_views(cohort, rows, keys, settings)

    def loss(index: Tensor, step: rnd.Counter) -> Tensor:
        z1, z2 = cohort.net(views(index, step)).chunk(2, 1)
        return losses.nt_xent(z1, z2, settings.temperature)

    cohort.net.train()
    return fit(
        loss,
        cohort.net.parameters(),
        keys,
        rows.shape[1],
        epochs=settings.epochs,
        batch=settings.batch,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        purpose="warm-up",
        progress=cohort.progress,
    )
