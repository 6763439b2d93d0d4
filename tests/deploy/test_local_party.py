"""The last door of a company: what comes in is checked, what goes out passes guard, measurement and
ledger in this order."""

from typing import Any

import pytest
import torch

from protoevfl.codec import decode, encode
from protoevfl.deploy.local_party import BEGUN, LocalParty
from protoevfl.deploy.row_ledger import LimitError
from protoevfl.federation.party import Party
from protoevfl.messages import Describe, Embed, Embeddings, MessageError
from tests.tiny import CLASSES, QUERY, column_table, quick

PLENTY = 1 << 20


class Steps:
    """Guard, measurement and ledger that write down when they are asked."""

    def __init__(self, full: bool = False) -> None:
        self.seen: list[str] = []
        self.full = full

    def up(self, reply: Embeddings) -> Embeddings:
        self.seen.append("guard")
        return Embeddings(torch.zeros_like(reply.values))

    def check(self, party: Party, asked: Any, reply: Embeddings, name: str) -> None:
        assert not reply.values.any(), "measured before the guard"
        self.seen.append("measure")

    def enter(self, *facts: Any) -> None:
        self.seen.append("ledger")
        if self.full:
            raise LimitError("the row has left often enough")

    def remember(self, *facts: Any) -> None:
        self.seen.append("remember")


def door(steps: Steps | None = None, **more: Any) -> LocalParty:
    party = Party(quick("proto_evfl"), column_table(), 7)
    watched = {"guard": steps, "audit": steps, "account": steps} if steps else {}
    return LocalParty(party, {"classes": CLASSES}, PLENTY, **watched, **more)


def test_a_reply_passes_guard_measurement_and_ledger_before_it_leaves() -> None:
    steps = Steps()
    reply = decode(door(steps).handle_bytes(encode(Embed("query")), "round 1"))
    assert steps.seen == ["guard", "measure", "ledger", "remember"]
    assert isinstance(reply, Embeddings)
    assert reply.values.shape[0] == QUERY
    assert not reply.values.any()  # what the guard made of it


def test_what_the_ledger_refuses_neither_leaves_nor_is_remembered() -> None:
    steps = Steps(full=True)
    with pytest.raises(LimitError):
        door(steps).handle_bytes(encode(Embed("query")), "round 1")
    assert "remember" not in steps.seen


def test_more_groups_than_classes_are_refused() -> None:
    with pytest.raises(MessageError, match="there are fewer classes"):
        door().handle_bytes(encode(Describe(CLASSES + 1)))


def test_in_training_nothing_is_shown_that_has_learnt_nothing() -> None:
    fresh, learning = door(), door(learns=True)
    before = fresh.party.state()
    first = [decode(d.handle_bytes(encode(Embed("query")))) for d in (fresh, learning)]
    assert BEGUN in learning.party.memory
    assert BEGUN not in fresh.party.memory
    same = {n: torch.equal(t, before[n]) for n, t in learning.party.state().items() if n in before}
    assert not all(same.values())  # it warmed up before it answered
    assert isinstance(first[0], Embeddings)
    assert isinstance(first[1], Embeddings)
    assert not torch.equal(first[0].values, first[1].values)
