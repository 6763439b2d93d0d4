"""Several extractors a party, side by side: one message carries the embeddings of all of them."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from protoevfl.core import random as rnd
from protoevfl.federation.party import Cohort, Rows
from protoevfl.messages import Message, values


class Ensemble(nn.Module):
    """`models` networks a member on the same rows; outputs side by side: (G, B, models*d)."""

    def __init__(self, net: nn.Module, models: int) -> None:
        super().__init__()
        self.net, self.models = net, models

    def forward(self, x: Tensor) -> Tensor:
        wide = x.repeat_interleave(self.models, 0)  # (G*models, B, ...)
        z: Tensor = self.net(wide)
        return z.view(len(x), self.models, *z.shape[1:]).movedim(1, 2).flatten(2)

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        return {"output": self(x)}


def member_keys(keys: Tensor, models: int) -> Tensor:
    """(G,) -> (G*models,): the keys of a party's networks stand together."""
    return torch.stack([rnd.derive(keys, "model", i) for i in range(models)], 1).flatten()


def wide(cohort: Cohort, net: nn.Module, models: int) -> Cohort:
    """The same parties with each of their `models` networks as a member of its own, for work
    without messages."""
    pool, aligned = (
        part.repeat_interleave(models, 0) for part in (cohort.rows.pool, cohort.rows.aligned)
    )
    rows = Rows(pool, aligned, aligned[:, :0], cohort.rows.spans)
    return Cohort(cohort.method, rows, member_keys(cohort.keys, models), net, cohort.progress)


def blocks(replies: Mapping[int, Message], parties: tuple[int, ...], models: int) -> Tensor:
    """Replies (B, E*d) of each party as (E, M, B, d)."""
    stacked = torch.stack([values(replies[m]) for m in parties])  # (M, B, E*d)
    return stacked.view(*stacked.shape[:2], models, -1).movedim(2, 0)


def flat(z: Tensor) -> Tensor:
    """The inverse of `blocks`: (E, M, B, d) -> (M, B, E*d)."""
    return z.movedim(0, 2).flatten(2)
