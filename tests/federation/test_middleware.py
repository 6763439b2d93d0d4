"""Bytes are counted for every party but the active one; transcripts are complete; the cache asks
once."""

from collections.abc import Mapping

import torch

from protoevfl.codec import payload_bytes
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.lockstep import Address
from protoevfl.federation.middleware import Metered, QueryCache, Recorded
from protoevfl.federation.party import Party
from protoevfl.messages import BackwardBatch, Done, Embed, Embeddings, ForwardBatch, Message
from protoevfl.method import PartyError
from protoevfl.methods.split import Vanilla
from tests.tiny import addresses, finish, image_table, owner, party_keys


class Answers:
    """An engine with a fixed reply; counts how often each party was asked."""

    def __init__(self, reply: Message | PartyError) -> None:
        self.reply, self.asked = reply, list[Address]()

    def exchange(self, requests: Mapping[Address, Message]) -> dict[Address, Message | PartyError]:
        self.asked += list(requests)
        return dict.fromkeys(requests, self.reply)


REPLY = Embeddings(torch.ones(5, 4))


class TestMetered:
    def test_counts_by_run_direction_type_and_party(self) -> None:
        engine = Metered(Answers(REPLY))
        gradients = BackwardBatch(0, torch.arange(3), torch.zeros(3, 4))
        engine.exchange(
            {(0, 0): gradients, (0, 1): gradients, (0, 2): gradients, (1, 1): Embed("query")}
        )
        engine.exchange({(0, 1): ForwardBatch(1, torch.arange(3))})
        down, up = 8 + 3 * 8 + 3 * 4 * 4, 5 * 4 * 4
        assert engine.ledger(0) == {
            "up": 3 * up,
            "down": 2 * down + 8 + 3 * 8,
            "by_type": {
                "BackwardBatch": {"up": 0, "down": 2 * down},
                "Embeddings": {"up": 3 * up, "down": 0},
                "ForwardBatch": {"up": 0, "down": 8 + 3 * 8},
            },
            "by_party": {"1": {"up": 2 * up, "down": down + 32}, "2": {"up": up, "down": down}},
        }
        assert engine.ledger(1)["up"] == up
        assert engine.rounds == {0: 2, 1: 1}

    def test_the_active_party_sends_nothing_over_a_border(self) -> None:
        engine = Metered(Answers(REPLY))
        engine.exchange({(0, 0): Embed("query")})
        assert engine.ledger(0) == {"up": 0, "down": 0, "by_type": {}, "by_party": {}}
        assert not engine.rounds[0]

    def test_a_lost_party_costs_the_request_only(self) -> None:
        engine = Metered(Answers(PartyError(1, "gone")))
        engine.exchange({(0, 1): Embed("query")})
        assert (engine.ledger(0)["up"], engine.ledger(0)["down"]) == (0, len("query"))

    def test_a_whole_talk_by_hand(self) -> None:
        """Split learning, 12 rows in batches of 6, 2 epochs, 2 networks of width 84, one passive
        party."""
        method, keys = Vanilla(models=2, epochs=2, batch=6, hidden=8), party_keys(1, 2)
        engine = Metered(
            InProcess({a: Party(method, image_table(*a), keys[a]) for a in addresses(1, 2)})
        )
        finish([method.train(owner())], engine)
        batches, values = 4, 6 * 2 * 84 * 4
        ledger = engine.ledger(0)
        assert ledger["up"] == batches * values
        assert ledger["down"] == batches * ((8 + 6 * 8) + (8 + 6 * 8 + values))
        assert engine.rounds[0] == 2 * batches


def test_a_transcript_holds_every_message_of_everybody() -> None:
    engine = Recorded(Answers(REPLY))
    engine.exchange({(0, 0): Embed("query"), (1, 2): Done()})
    assert engine.transcript == [(0, 0, Embed("query"), REPLY), (1, 2, Done(), REPLY)]


def test_metered_and_recorded_agree() -> None:
    method, keys = Vanilla(models=1, epochs=1, batch=6, hidden=8), party_keys(1, 2)
    recorded = Recorded(
        InProcess({a: Party(method, image_table(*a), keys[a]) for a in addresses(1, 2)})
    )
    metered = Metered(recorded)
    finish([method.train(owner())], metered)
    crossing = [(request, reply) for _, party, request, reply in recorded.transcript if party]
    assert metered.ledger(0)["down"] == sum(payload_bytes(request) for request, _ in crossing)
    assert metered.ledger(0)["up"] == sum(
        payload_bytes(reply) for _, reply in crossing if isinstance(reply, Message)
    )


class TestQueryCache:
    def test_asks_each_party_once_for_the_rows_to_predict(self) -> None:
        inner = Answers(REPLY)
        engine = QueryCache(inner)
        for some in ([1], [0, 1], [0, 1, 2]):
            replies = engine.exchange({(0, m): Embed("query") for m in some})
            assert set(replies) == {(0, m) for m in some}
            assert all(reply is REPLY for reply in replies.values())
        assert sorted(inner.asked) == [(0, 0), (0, 1), (0, 2)]

    def test_other_rows_and_requests_pass_through_each_time(self) -> None:
        inner = Answers(REPLY)
        engine = QueryCache(inner)
        for request in (Embed("query"), Embed("aligned"), Embed("aligned"), Done()):
            assert engine.exchange({(0, 1): request}) == {(0, 1): REPLY}
        assert len(inner.asked) == 4

    def test_a_lost_party_is_asked_again(self) -> None:
        inner = Answers(PartyError(1, "gone"))
        engine = QueryCache(inner)
        assert engine.exchange({(0, 1): Embed("query")}) == {(0, 1): inner.reply}
        inner.reply = REPLY
        assert engine.exchange({(0, 1): Embed("query")}) == {(0, 1): REPLY}
