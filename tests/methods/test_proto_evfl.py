"""Proto-EVFL: the collapse of the naive version and its guard, withheld prototypes, one-way mode, rounds as data."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from protoevfl.bench.run import RunConfig, prepare
from protoevfl.core import metrics
from protoevfl.errors import UserError
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.federation import parties_for
from protoevfl.federation.party import Party
from protoevfl.head import HeadSettings
from protoevfl.messages import Describe, Embed, Learn, Learned, Message, WarmUp
from protoevfl.method import PartyError, Report
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.methods.rounds import pseudo_labels
from protoevfl.methods.settings import RoundSettings
from protoevfl.methods.warmup import WarmUpSettings
from tests.tiny import finish, image_table, owner, party_keys, quick, reports_of

HEAD = HeadSettings(members=2, hidden=16, epochs=2)
WARM = WarmUpSettings(epochs=3, batch=64)
NAIVE = RoundSettings(
    count=3, epochs=6, batch=32, lr=1e-2, ssl_weight=0.0, weight=1.0, temperature=None, update="paper", rho=0.1
)


class Watched:
    """An engine that keeps what was asked and answered."""

    def __init__(self, engine: object) -> None:
        self.engine, self.said = engine, list[tuple[Message, Message]]()

    def exchange(self, requests):  # type: ignore[no-untyped-def]
        replies = self.engine.exchange(requests)  # type: ignore[attr-defined]
        self.said += [(requests[a], replies[a]) for a in requests]
        return replies


def talk(method: ProtoEVFL, **config: object) -> tuple[Watched, list[Report], object]:
    world = prepare(RunConfig(dataset="digits", aligned=60, pool=100, **config), 0, "cpu")  # type: ignore[arg-type]
    engine = Watched(parties_for(method, [world.simulated], "stacked", "cpu"))
    reports = [report for _, report in reports_of([method.train(world.owner)], engine)]
    return engine, reports, world


def test_the_naive_transport_loss_collapses_and_the_guard_says_so() -> None:
    """Regression: from a random extractor, without self-supervision, the embeddings lose their rank."""
    naive = ProtoEVFL(warm=WarmUpSettings(epochs=0), rounds=NAIVE, head=HEAD)
    with pytest.raises(UserError, match="have collapsed"):
        talk(naive)
    engine, _, _ = talk(replace(naive, rounds=replace(NAIVE, guard=False)))
    first = next(reply for request, reply in engine.said if isinstance(request, WarmUp))
    last = [reply for request, reply in engine.said if isinstance(request, Learn)][-1]
    before, after = (float(metrics.effective_rank(r.values)) for r in (first, last))  # type: ignore[attr-defined]
    assert after < 0.5 * before


def test_with_self_supervision_the_rank_stays() -> None:
    engine, _, _ = talk(ProtoEVFL(warm=WARM, rounds=RoundSettings(count=2, epochs=2, batch=64, weight=1.0), head=HEAD))
    last = [reply for request, reply in engine.said if isinstance(request, Learn)][-1]
    assert float(metrics.effective_rank(last.values)) > 15  # type: ignore[attr-defined]


def test_one_way_sends_nothing_down() -> None:
    engine, _, _ = talk(ProtoEVFL(warm=WARM, head=HEAD), setting="zero_shot", classes=(3,))
    assert {type(request) for request, _ in engine.said} == {WarmUp, Describe}


def test_inner_layers_cross_once_after_the_rounds() -> None:
    method = ProtoEVFL(
        warm=WARM, rounds=RoundSettings(count=2, epochs=1, batch=64), head=HEAD, layers=("output", "hidden", "conv")
    )
    engine, _, _ = talk(method)
    kinds = [type(request) for request, _ in engine.said[::4]]
    assert kinds == [WarmUp, Learn, Learn, Embed]
    widths = [reply.values.shape[1] for _, reply in engine.said[::4]]  # type: ignore[attr-defined]
    assert widths == [84, 84, 84, 84 + 120 + 16]


def test_a_class_with_too_few_rows_is_withheld_and_never_guessed() -> None:
    method = ProtoEVFL(warm=WARM, rounds=RoundSettings(count=1, epochs=1, batch=64, least_rows=3), head=HEAD)
    engine, _, _ = talk(method, setting="few_shot", classes=(3,), shots=2)
    asked, told = next((q, a) for q, a in engine.said if isinstance(q, Learn) and isinstance(a, Learned))
    assert asked.present.tolist() == [1, 1, 1, 0, 1, 1, 1, 1, 1, 1]
    f = torch.randn(1, 50, 84, generator=torch.Generator().manual_seed(0))
    guess = pseudo_labels(f, asked.prototypes[None], asked.present[None], method.rounds)
    assert 3 not in guess
    assert told.prior.sum().item() == pytest.approx(1, abs=1e-4)


def test_rounds_stop_when_held_out_rows_no_longer_gain() -> None:
    patient = RoundSettings(count=6, epochs=1, batch=64, lr=0.0, weight_decay=0.0, patience=2)
    _, reports, _ = talk(ProtoEVFL(warm=WARM, rounds=patient, head=HEAD))
    assert sum(r.phase == "rounds" for r in reports) <= 5


def test_the_paper_round_reports_loss_and_gradient_norm() -> None:
    method = ProtoEVFL(
        warm=WarmUpSettings(epochs=0), rounds=replace(NAIVE, count=2, guard=False), head=HEAD, head_each_round=True
    )
    _, reports, _ = talk(method)
    rounds = [r.values for r in reports if r.phase == "rounds"]
    assert all(float(v["loss"]) > 0 and float(v["gradient_norm"]) > 0 for v in rounds)


@pytest.mark.parametrize("away", [(0,), (1,), (0, 1), (2,), (3,)], ids=str)
def test_a_party_that_is_away_for_some_exchanges_is_done_without_and_catches_up(away: tuple[int, ...]) -> None:
    """0 is the warm-up, 1 and 2 are rounds, 3 asks for the inner layers; the party comes back after them."""
    method = quick("proto_evfl", rounds__count=2, layers=["output", "hidden"])
    engine = InProcess({a: Party(method, image_table(*a), key) for a, key in party_keys(1, 3).items()})
    mine, asked = owner(0, 3), list[str]()

    class Lossy:
        def exchange(self, requests: Any) -> Any:
            number = len(asked)
            asked.append(type(requests[0, 2]).__name__)
            here = {a: r for a, r in requests.items() if a[1] != 2 or number not in away}
            return {**engine.exchange(here), **({} if len(here) == 3 else {(0, 2): PartyError(2, "away")})}

    finish([method.train(mine)], Lossy(), "skip")
    second = "WarmUp" if 0 in away else "Learn"
    third = "WarmUp" if away == (0, 1) else "Learn"
    assert asked == ["WarmUp", second, third, "Embed"]
    assert mine.memory["usable"].tolist() == [True, True, 3 not in away]
    (p,) = finish([method.predict(mine, (0, 1, 2))], engine)
    (without,) = finish([method.predict(mine, (0, 1))], engine)
    torch.testing.assert_close(p.sum(1), torch.ones(len(p)))
    assert torch.equal(p, without) == (3 in away)
