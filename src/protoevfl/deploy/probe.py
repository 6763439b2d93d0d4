"""A method that trains nothing: it sends numbers to and fro, to try out a deployment and measure
its connection.

    party:   x_t = x_{t-1} / 2 + mean(request) + noise(key, t),   replies x_t spread over rows x width numbers
    owner:   the next request is the mean of all replies

No data of the party is used. The result depends on every reply of every round, so a lost, repeated
or changed round shows in it; the tests of the fault campaign compare it bit for bit.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.messages import Embed, Embeddings, Learn, Learned, Message
from protoevfl.method import PREDICTION, Asking, Exchanges, Report, Talk
from protoevfl.rows.table import PartyTable
from protoevfl.validation import from_dotted


@dataclass(frozen=True)
class Probe:
    """rows x width floats go up in every round."""

    name: ClassVar[str] = "probe"
    exchanges: ClassVar[Exchanges] = ((Learn, Learned), *PREDICTION)
    rounds: int = 10
    rows: int = 100
    width: int = 25
    seconds: float = 0.0  # of pretended work in a round

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        return nn.Identity()

    def answer(self, cohort: Cohort, request: Message) -> Message:
        assert isinstance(request, Learn | Embed)
        number = request.round if isinstance(request, Learn) else self.rounds
        before = cohort.memory.get("x", torch.zeros(cohort.size))  # (G,)
        echo = request.prior.mean(-1) if isinstance(request, Learn) else torch.zeros(cohort.size)
        x = before / 2 + echo + rnd.uniform(cohort.keys, "probe", number, (1,))[:, 0]
        cohort.memory["x"] = x
        time.sleep(self.seconds)
        values = x[:, None, None] * torch.ones(1, self.rows, self.width)  # (G, rows, width)
        if isinstance(request, Embed):
            return Embeddings(values)
        return Learned(values, request.prior)

    def train(self, owner: LabelOwner) -> Talk:
        echo, kept = torch.zeros(owner.classes), []
        blank = torch.zeros(owner.classes, 1)
        for t in range(self.rounds):
            replies = yield {
                m: Learn(t, blank, torch.ones(owner.classes), echo) for m in owner.parties
            }
            # (M,)
            embeddings = torch.stack(
                [_one(replies[m]) if m in replies else torch.zeros(()) for m in owner.parties]
            )
            echo = embeddings.mean().expand(owner.classes).clone()
            kept.append(embeddings)
            yield Report("probe", t + 1, self.rounds)
        owner.memory["probe"] = torch.stack(kept)  # (rounds, M)

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        replies = yield {m: Embed("query") for m in owner.parties if m in present}
        last = torch.stack(
            [_one(replies[m]) if m in replies else torch.zeros(()) for m in owner.parties]
        )
        return torch.cat([owner.memory["probe"], last[None]])


def make(settings: Mapping[str, Any]) -> Probe:
    probe = from_dotted(Probe, settings, "probe")
    if min(probe.rounds, probe.rows, probe.width) < 1 or probe.seconds < 0:
        raise UserError("probe: rounds, rows and width must be at least 1, seconds not below 0")
    return probe


def _one(reply: Message) -> Tensor:
    assert isinstance(reply, Learned | Embeddings)
    return reply.values.flatten()[0]


def table(name: str) -> PartyTable:
    """Stands for a party's rows; holds nothing."""
    none = torch.zeros(1, 1)
    return PartyTable(name, none, none, none)


def owner(parties: int, seed: int) -> LabelOwner:
    return LabelOwner(
        torch.zeros(1, dtype=torch.int64), 2, tuple(range(parties)), rnd.key(seed, "owner")
    )
