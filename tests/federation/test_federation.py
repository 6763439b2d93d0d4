"""`Federation`: what it does is what a loop by hand does; subsets are free; engines, names and
bytes."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from protoevfl.codec import payload_bytes
from protoevfl.errors import UserError
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.federation import Federation, Parties, SimulatedRun, party_key, simulate
from protoevfl.federation.lockstep import Address, Engine, PartyLostError
from protoevfl.federation.party import Party
from protoevfl.messages import Embed, Message
from protoevfl.method import PartyError, Report
from protoevfl.observer import Observer
from protoevfl.privacy.policy import PrivacySettings
from tests.tiny import finish, image_table, owner, quick

OPEN = PrivacySettings()
METHOD = quick("proto_evfl")


class Counted:
    """An engine that keeps what was asked of whom."""

    def __init__(self, engine: Parties) -> None:
        self.engine = engine
        self.asked: list[tuple[Address, Message]] = []

    def exchange(
        self, requests: Mapping[Address, Message]
    ) -> Mapping[Address, Message | PartyError]:
        self.asked += requests.items()
        return self.engine.exchange(requests)


class Ear(Observer):
    def __init__(self) -> None:
        self.work: list[str] = []
        self.reports: list[tuple[int, Report]] = []

    def progress(self, what: str, done: int, total: int) -> None:
        self.work.append(what)

    def report(self, report: Report, run: int = 0) -> None:
        self.reports.append((run, report))


def runs(*seeds: int) -> list[SimulatedRun]:
    return [SimulatedRun([image_table(s, m) for m in (0, 1)], owner(s, 2), s) for s in seeds]


def counted(*seeds: int, engine: str = "loop") -> tuple[Federation, Counted]:
    """An untrained federation and what stands between its parties and their guards."""
    kept: list[Counted] = []

    def around(parties: Parties) -> Engine:
        kept.append(Counted(parties))
        return kept[0]

    return simulate(METHOD, runs(*seeds), OPEN, engine=engine, around=around), kept[0]


def by_hand(seed: int) -> Tensor:
    """Parties one by one, no border, no federation."""
    me = owner(seed, 2)
    parties = InProcess(
        {(0, m): Party(METHOD, image_table(seed, m), party_key(seed, m)) for m in (0, 1)}
    )
    finish([METHOD.train(me)], parties)
    (p,) = finish([METHOD.predict(me, me.parties)], parties)
    assert isinstance(p, Tensor)
    return p


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_two_runs_together_are_each_what_they_are_by_hand(engine: str) -> None:
    federation = simulate(METHOD, runs(3, 8), OPEN, engine=engine)
    federation.train()
    for p, seed in zip(federation.predict(), (3, 8), strict=True):
        torch.testing.assert_close(p, by_hand(seed), atol=1e-3, rtol=0)


def test_every_run_may_have_a_method_of_its_own() -> None:
    other = quick("proto_evfl", head__lr=0.1)
    same = simulate(METHOD, runs(3, 3), OPEN, engine="loop")
    different = simulate([METHOD, other], runs(3, 3), OPEN, engine="loop")
    for federation in (same, different):
        federation.train()
    assert torch.equal(*same.predict())
    assert not torch.equal(*different.predict())


def test_only_the_runs_asked_for_are_predicted() -> None:
    federation, engine = counted(3, 8)
    federation.train()
    both = federation.predict()
    federation.train()  # the same again: the cache is empty
    del engine.asked[:]
    (second,) = federation.predict(runs=[1])
    assert {run for (run, _), _ in engine.asked} == {1}
    assert second.shape == both[1].shape


def test_rows_to_be_predicted_are_asked_for_once_until_the_next_training() -> None:
    federation, engine = counted(3)
    federation.train()
    del engine.asked[:]
    first = federation.predict()[0]
    assert len(engine.asked) == 2
    assert all(request == Embed("query") for _, request in engine.asked)
    assert torch.equal(federation.predict()[0], first)
    federation.predict((0,))
    federation.predict((1,))
    assert set(federation.query_embeddings()) == {0, 1}
    assert len(engine.asked) == 2
    federation.train()
    del engine.asked[:]
    federation.predict((1,))
    assert [address for address, _ in engine.asked] == [(0, 1)]


def test_traffic_is_what_crossed_to_and_from_the_other_parties() -> None:
    federation, engine = counted(3, 8)
    federation.train()
    passive = [(address, request) for address, request in engine.asked if address == (1, 1)]
    traffic = federation.traffic(1)
    assert traffic["rounds"] == len(passive)
    assert traffic["bytes"]["down"] == sum(payload_bytes(request) for _, request in passive)
    assert set(traffic["bytes"]["by_party"]) == {"1"}
    assert traffic["bytes"]["up"] > 0
    assert not traffic["epsilon"]  # no noise, nothing spent
    before = traffic["bytes"]["up"]
    federation.predict(runs=[1])
    after = federation.traffic(1)["bytes"]["up"]
    federation.predict(runs=[1])
    assert before < after == federation.traffic(1)["bytes"]["up"]


def test_an_observer_hears_whose_work_it_is_and_which_run_reports() -> None:
    ear = Ear()
    federation = simulate(METHOD, runs(3, 8), OPEN, engine="loop", observer=ear)
    assert not ear.work
    federation.train(ear)
    assert {what.split(":")[0] for what in ear.work} == {"party 1", "party 2"}
    assert {run for run, _ in ear.reports} == {0, 1}


@pytest.mark.parametrize(
    ("engine", "kind"), [("auto", Stacked), ("stacked", Stacked), ("loop", InProcess)]
)
def test_an_engine_is_chosen_by_name(engine: str, kind: type) -> None:
    assert isinstance(simulate(METHOD, runs(3), OPEN, engine=engine).parties, kind)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UserError, match=r"unknown engine 'fast'; there are auto, loop, stacked"):
        simulate(METHOD, runs(3), OPEN, engine="fast")


def test_a_lost_party_stops_the_run_or_is_done_without() -> None:
    federation, engine = counted(3)
    federation.train()
    exchange = engine.exchange

    def lossy(requests: Mapping[Address, Message]) -> Mapping[Address, Message | PartyError]:
        return {
            a: PartyError(1, "away") if a[1] else reply for a, reply in exchange(requests).items()
        }

    engine.exchange = lossy  # type: ignore[method-assign]
    with pytest.raises(PartyLostError, match="party 1 did not answer: away"):
        federation.predict()
    with pytest.raises(UserError, match="party 1 did not answer: away"):
        federation.query_embeddings()
    federation.on_party_loss = "skip"
    without = federation.predict()[0]
    assert torch.equal(without, federation.predict((0,))[0])
