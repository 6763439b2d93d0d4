"""What a fitted model's parties send of new rows."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from protoevfl.distributed import choose_device
from protoevfl.errors import UserError
from protoevfl.rows.in_memory import encode, who_has


class Sent(NamedTuple):
    """What the parties send of n rows to be predicted."""

    embeddings: dict[int, Tensor]  # (n, d) by party number
    present: Tensor  # (parties, n): who has which row
    own: Tensor | None  # the first party's encoded rows, for its own model


def embed(model: Any, tables: Mapping[str, Any], masks: Mapping[str, Any]) -> Sent:
    """tables   {party: its rows}, of some or all parties
    masks    {party: (n,) true or false}, which rows it has; all of them where it is not named
    """
    if stray := sorted(set(tables) - set(model.parties_)):
        raise UserError(
            f"'{stray[0]}' is not a party of this model; it has {', '.join(model.parties_)}"
        )
    has = torch.from_numpy(who_has(tables, masks))
    present = torch.zeros(len(model.parties_), has.shape[1], dtype=torch.bool)
    embeddings: dict[int, Tensor] = {}
    own: Tensor | None = None
    for (name, table), mask in zip(tables.items(), has, strict=True):
        party = model.parties_[name]
        present[party.index] = mask
        encoded = encode(party.encoder, table, name)
        embeddings[party.index] = party.embed([encoded], choose_device(model.device))
        if not party.index and model.owner_.has_own_model:
            own = encoded
    return Sent(embeddings, present, own)
