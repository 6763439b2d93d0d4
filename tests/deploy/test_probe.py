"""The probe: a run of made-up numbers whose result shows every reply of every round."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from protoevfl.codec import encode, payload_bytes
from protoevfl.core import random as rnd
from protoevfl.deploy import probe
from protoevfl.errors import UserError
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.lockstep import Address
from protoevfl.federation.party import Party
from protoevfl.messages import Embeddings, Learned, Message
from protoevfl.method import PartyError, Report
from tests.tiny import finish, reports_of

PARTIES, ROUNDS = 3, 4
Change = Callable[[int, int, Message], Message | PartyError]  # (exchange, party, reply) -> reply


@dataclass
class Wire:
    """The in-process engine with something between it and the owner."""

    inner: InProcess
    change: Change
    count: int = 0

    def exchange(
        self, requests: Mapping[Address, Message]
    ) -> Mapping[Address, Message | PartyError]:
        self.count += 1
        replies = self.inner.exchange(requests)
        return {
            a: r if isinstance(r, PartyError) else self.change(self.count, a[1], r)
            for a, r in replies.items()
        }


def run(
    change: Change = lambda number, party, reply: reply, seed: int = 0, rounds: int = ROUNDS
) -> Tensor:
    method, owner = (
        probe.make({"rounds": rounds, "rows": 2, "width": 3}),
        probe.owner(PARTIES, seed),
    )
    keys = {(0, m): rnd.key(seed, "party", m) for m in range(PARTIES)}
    engine = Wire(
        InProcess({a: Party(method, probe.table("p"), k) for a, k in keys.items()}, wire=True),
        change,
    )
    finish([method.train(owner)], engine, "skip")
    (result,) = finish([method.predict(owner, owner.parties)], engine, "skip")
    assert isinstance(result, Tensor)
    return result


def test_a_run_is_repeated_bit_for_bit_and_another_seed_is_another_run() -> None:
    first = run()
    assert first.shape == (ROUNDS + 1, PARTIES)
    assert torch.equal(first, run())
    assert not (first == run(seed=1)).any()


@pytest.fixture(scope="module")
def plain() -> Tensor:
    return run()


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
@pytest.mark.parametrize("party", range(PARTIES))
def test_the_result_shows_every_reply_of_every_round(
    plain: Tensor, number: int, party: int
) -> None:
    """One reply changed a little: all rounds before it are the same, its own and every later one is
    not."""

    def nudge(at: int, who: int, reply: Message) -> Message:
        if (at, who) != (number, party):
            return reply
        assert isinstance(reply, Learned)
        return replace(reply, values=reply.values * (1 + 1e-5))

    changed = run(nudge)
    assert torch.equal(plain[: number - 1], changed[: number - 1])
    assert plain[number - 1, party] != changed[number - 1, party]
    if number < ROUNDS:  # the owner's next request carried it to all parties
        assert not (plain[number:ROUNDS] == changed[number:ROUNDS]).any()


def test_a_lost_party_and_a_repeated_reply_show(plain: Tensor) -> None:
    def lose(at: int, who: int, reply: Message) -> Message | PartyError:
        return PartyError(1, "away") if (at, who) == (2, 1) else reply

    lost = run(lose)
    assert lost[1, 1] == 0
    assert lost[2, 1] != 0
    assert not (lost[2:ROUNDS] == plain[2:ROUNDS]).any()
    kept: dict[int, Message] = {}

    def repeat(at: int, who: int, reply: Message) -> Message:
        kept.setdefault(who, reply)
        return kept[who] if at == 2 else reply

    assert not torch.equal(run(repeat), plain)


def test_a_party_forgets_nothing_between_rounds() -> None:
    """Its number of round t holds half of that of round t - 1: a party put back by a round answers
    another number."""
    method = probe.make({"rounds": ROUNDS, "rows": 1, "width": 1})
    parties = [Party(method, probe.table("p"), 7) for _ in range(2)]
    talk = method.train(probe.owner(1, 0))
    asked = next(talk)
    assert not isinstance(asked, Report)
    state = parties[1].state()
    first = [party.handle(asked[0]) for party in parties]
    assert torch.equal(first[0].values, first[1].values)  # type: ignore[attr-defined]
    parties[1].restore(state)
    second = [party.handle(asked[0]) for party in parties]
    assert second[0].values != second[1].values  # type: ignore[attr-defined]


def test_the_settings_say_how_much_is_sent() -> None:
    method, party_of = probe.make({"rows": 50, "width": 20}), rnd.key(0, "party", 0)
    asked = next(method.train(probe.owner(1, 0)))
    assert not isinstance(asked, Report)
    reply = Party(method, probe.table("p"), party_of).handle(asked[0])
    assert payload_bytes(Embeddings(reply.values)) == 4 * 50 * 20  # type: ignore[attr-defined]
    assert len(encode(reply)) < 4 * 50 * 20 + 500


def test_every_round_is_reported() -> None:
    method, owner = probe.make({"rounds": ROUNDS}), probe.owner(2, 0)
    engine = InProcess({(0, m): Party(method, probe.table("p"), m) for m in range(2)})
    reports = [report for _, report in reports_of([method.train(owner)], engine)]
    assert [(r.phase, r.step, r.steps) for r in reports] == [
        ("probe", t + 1, ROUNDS) for t in range(ROUNDS)
    ]


def test_a_party_left_out_of_the_prediction_is_a_zero() -> None:
    method, owner = probe.make({"rounds": 1}), probe.owner(2, 0)
    engine = InProcess({(0, m): Party(method, probe.table("p"), m) for m in range(2)})
    finish([method.train(owner)], engine)
    (result,) = finish([method.predict(owner, (0,))], engine)
    assert result[-1, 0] != 0
    assert result[-1, 1] == 0


def test_unknown_settings_are_one_line() -> None:
    with pytest.raises(UserError, match="probe has no setting 'round'"):
        probe.make({"round": 3})
