"""Proto-EVFL: the collapse of the naive version and its guard, withheld prototypes, one-way mode,
rounds as data."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from protoevfl.bench.world import RunConfig, prepare
from protoevfl.core import metrics
from protoevfl.errors import UserError
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.federation import SimulatedRun, parties_for
from protoevfl.federation.owner import Further, LabelOwner, OwnRows
from protoevfl.federation.party import Party
from protoevfl.head import HeadSettings
from protoevfl.messages import Describe, Embed, Learn, Learned, Message, SendFeatures, WarmUp
from protoevfl.method import PartyError, Report
from protoevfl.methods import forest, own_trees
from protoevfl.methods.own_model import own_scores
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.methods.rounds import pseudo_labels
from protoevfl.methods.settings import RoundSettings
from protoevfl.methods.unseen import lacking
from protoevfl.methods.warmup import WarmUpSettings
from protoevfl.rows.table import PartyTable
from tests.tiny import (
    ALIGNED,
    POOL,
    column_table,
    finish,
    image_table,
    labels,
    owner,
    party_keys,
    quick,
    reports_of,
)

HEAD = HeadSettings(members=2, hidden=16, epochs=2)
WARM = WarmUpSettings(epochs=3, batch=64)
NAIVE = RoundSettings(
    count=3,
    epochs=6,
    batch=32,
    lr=1e-2,
    ssl_weight=0.0,
    weight=1.0,
    temperature=None,
    update="paper",
    rho=0.1,
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
    """Regression: from a random extractor, without self-supervision, the embeddings lose their
    rank."""
    naive = ProtoEVFL(warm=WarmUpSettings(epochs=0), rounds=NAIVE, head=HEAD)
    with pytest.raises(UserError, match=r"made the embeddings of party . collapse"):
        talk(naive)
    engine, _, _ = talk(replace(naive, rounds=replace(NAIVE, guard=False)))
    first = next(reply for request, reply in engine.said if isinstance(request, WarmUp))
    last = [reply for request, reply in engine.said if isinstance(request, Learn)][-1]
    before, after = (float(metrics.effective_rank(r.values)) for r in (first, last))  # type: ignore[attr-defined]
    assert after < 0.5 * before


def test_with_self_supervision_the_rank_stays() -> None:
    engine, _, _ = talk(
        ProtoEVFL(
            warm=WARM, rounds=RoundSettings(count=2, epochs=2, batch=64, weight=1.0), head=HEAD
        )
    )
    last = [reply for request, reply in engine.said if isinstance(request, Learn)][-1]
    assert float(metrics.effective_rank(last.values)) > 15  # type: ignore[attr-defined]


def test_one_way_sends_nothing_down() -> None:
    engine, _, _ = talk(ProtoEVFL(warm=WARM, head=HEAD), setting="zero_shot", classes=(3,))
    assert {type(request) for request, _ in engine.said} == {WarmUp, Describe}


def test_inner_layers_cross_once_after_the_rounds() -> None:
    method = ProtoEVFL(
        warm=WARM,
        rounds=RoundSettings(count=2, epochs=1, batch=64),
        head=HEAD,
        layers=("output", "hidden", "conv"),
    )
    engine, _, _ = talk(method)
    kinds = [type(request) for request, _ in engine.said[::4]]
    assert kinds == [WarmUp, Learn, Learn, Embed]
    widths = [reply.values.shape[1] for _, reply in engine.said[::4]]  # type: ignore[attr-defined]
    assert widths == [84, 84, 84, 84 + 120 + 16]


def test_a_class_with_too_few_rows_is_withheld_and_never_guessed() -> None:
    method = ProtoEVFL(
        warm=WARM, rounds=RoundSettings(count=1, epochs=1, batch=64, least_rows=3), head=HEAD
    )
    engine, _, _ = talk(method, setting="few_shot", classes=(3,), shots=2)
    asked, told = next(
        (q, a) for q, a in engine.said if isinstance(q, Learn) and isinstance(a, Learned)
    )
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
        warm=WarmUpSettings(epochs=0),
        rounds=replace(NAIVE, count=2, guard=False),
        head=HEAD,
        head_each_round=True,
    )
    _, reports, _ = talk(method)
    rounds = [r.values for r in reports if r.phase == "rounds"]
    assert all(float(v["loss"]) > 0 and float(v["gradient_norm"]) > 0 for v in rounds)


@pytest.mark.parametrize("away", [(0,), (1,), (0, 1), (2,), (3,)], ids=str)
def test_a_party_that_is_away_for_some_exchanges_is_done_without_and_catches_up(
    away: tuple[int, ...],
) -> None:
    """0 is the warm-up, 1 and 2 are rounds, 3 asks for the inner layers; the party comes back after
    them."""
    method = quick("proto_evfl", rounds__count=2, layers=["output", "hidden"])
    engine = InProcess(
        {a: Party(method, image_table(*a), key) for a, key in party_keys(1, 3).items()}
    )
    mine, asked = owner(0, 3), list[str]()

    class Lossy:
        def exchange(self, requests: Any) -> Any:
            number = len(asked)
            asked.append(type(requests[0, 2]).__name__)
            here = {a: r for a, r in requests.items() if a[1] != 2 or number not in away}
            return {
                **engine.exchange(here),
                **({} if len(here) == 3 else {(0, 2): PartyError(2, "away")}),
            }

    finish([method.train(mine)], Lossy(), "skip")
    second = "WarmUp" if 0 in away else "Learn"
    third = "WarmUp" if away == (0, 1) else "Learn"
    assert asked == ["WarmUp", second, third, "Embed"]
    assert mine.memory["usable"].tolist() == [True, True, 3 not in away]
    (p,) = finish([method.predict(mine, (0, 1, 2))], engine)
    (without,) = finish([method.predict(mine, (0, 1))], engine)
    torch.testing.assert_close(p.sum(1), torch.ones(len(p)))
    assert torch.equal(p, without) == (3 in away)


class TestEveryLabel:
    """Two parties; the labels of all rows of the first one are known."""

    @pytest.fixture(autouse=True)
    def _few_fits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(own_trees, "BOOSTING", ({"max_iter": 3, "min_samples_leaf": 2},))
        monkeypatch.setattr(forest, "TREES", 8)

    def tables(self, kind: str, further: int = 0) -> list[PartyTable]:
        if kind == "images":
            tables = [image_table(0, m) for m in (0, 1)]
        else:
            tables = [replace(column_table(0, m), numbers=(0, 1, 2)) for m in (0, 1)]
        return [replace(table, further=tables[m].pool[:further]) for m, table in enumerate(tables)]

    def owner_of(self, tables: list[PartyTable], further: int = 0) -> LabelOwner:
        label_owner = owner(0, 2)
        active = tables[0]
        pool_labels = labels(2000, POOL)
        label_owner.own = OwnRows(
            torch.cat([active.aligned, active.pool]),
            torch.cat([label_owner.labels, pool_labels]),
            active.query,
            ALIGNED + further,
        )
        if further:
            label_owner.further = Further(
                pool_labels[:further], torch.ones(2, further, dtype=torch.bool)
            )
        return label_owner

    def run(
        self, kind: str, label_owner: LabelOwner, further: int = 0
    ) -> tuple[ProtoEVFL, Watched]:
        method = quick("proto_evfl")
        assert isinstance(method, ProtoEVFL)
        runs = [SimulatedRun(self.tables(kind, further), label_owner, 0)]
        engine = Watched(parties_for(method, runs, "loop", "cpu"))
        finish([method.train(label_owner)], engine)
        return method, engine

    def test_parties_with_tables_are_asked_for_features_once_and_told_nothing(self) -> None:
        label_owner = self.owner_of(self.tables("table"))
        method, engine = self.run("table", label_owner)
        assert [type(request) for request, _ in engine.said] == [SendFeatures, SendFeatures]
        assert label_owner.head is None
        (p,) = finish([method.predict(label_owner, (0, 1))], engine)
        torch.testing.assert_close(p.sum(1), torch.ones(len(p)))
        (alone,) = finish([method.predict(label_owner, (0,))], engine)
        assert label_owner.own is not None
        torch.testing.assert_close(alone, own_scores(label_owner, label_owner.own.query).exp())

    def test_parties_with_images_train_as_ever(self) -> None:
        label_owner = self.owner_of(self.tables("images"))
        method, engine = self.run("images", label_owner)
        assert {type(request) for request, _ in engine.said} == {WarmUp, Learn}
        for present in ((0,), (1,), (0, 1)):
            (p,) = finish([method.predict(label_owner, present)], engine)
            torch.testing.assert_close(p.sum(1), torch.ones(len(p)))

    @pytest.mark.parametrize("kind", ["table", "images"])
    def test_labels_of_shared_rows_only_are_the_paper_s_case(self, kind: str) -> None:
        """No own model, no features, and nothing of either kept."""
        label_owner = owner(0, 2)
        _, engine = self.run(kind, label_owner)
        assert {type(request) for request, _ in engine.said} == {WarmUp, Learn}
        assert not {"linear", "further", "own.shared"} & set(label_owner.memory)

    @pytest.mark.parametrize("kind", ["table", "images"])
    def test_further_rows_are_asked_for_after_training_and_lie_where_they_belong(
        self, kind: str
    ) -> None:
        tables = self.tables(kind, 4)
        label_owner = self.owner_of(tables, 4)
        assert label_owner.further is not None
        label_owner.further.shared[1, ::2] = False
        tables[1] = replace(tables[1], further=tables[1].pool[1:4:2])
        method = quick("proto_evfl")
        engine = Watched(
            parties_for(method, [SimulatedRun(tables, label_owner, 0)], "stacked", "cpu")
        )
        finish([method.train(label_owner)], engine)
        assert [request for request, _ in engine.said[-2:]] == [Embed("further")] * 2
        blocks = label_owner.memory["further"]
        assert (blocks[1, ::2] == 0).all()
        torch.testing.assert_close(blocks[1, 1::2], engine.said[-1][1].values)  # type: ignore[attr-defined]

    def test_a_class_that_is_rare_among_shared_rows_only_is_no_rare_class(self) -> None:
        label_owner = replace(self.owner_of(self.tables("table")), rare=(1,), unseen=())
        method = ProtoEVFL()
        assert label_owner.own is not None
        counts = torch.bincount(label_owner.own.labels)
        assert counts[1] >= 10
        assert not lacking(label_owner, method.unseen)
        label_owner.own.labels[label_owner.own.labels == 1] = -1
        assert lacking(label_owner, method.unseen)
        assert lacking(replace(label_owner, own=None), method.unseen)

    def test_training_again_forgets_the_models_of_before(self) -> None:
        label_owner = self.owner_of(self.tables("table"))
        method, engine = self.run("table", label_owner)
        finish([method.predict(label_owner, (0, 1))], engine)
        assert label_owner.cache
        next(method.train(label_owner))
        assert not label_owner.cache


@pytest.mark.parametrize("make", [image_table, column_table])
@pytest.mark.parametrize("every_label", [False, True])
def test_few_numbers_of_a_row_cross_and_nothing_made_of_labels_goes_down(
    make: Any, every_label: bool
) -> None:
    method = quick("proto_evfl", columns="few", few=2, rounds__count=3, layers=["output", "hidden"])
    who = owner()
    tables = {(0, m): make(0, m) for m in (0, 1)}
    if every_label:
        active = tables[0, 0]
        known = torch.cat([who.labels, labels(0, len(active.pool))])
        rows = torch.cat([active.aligned, active.pool])
        who.own = OwnRows(rows, known, active.query, len(active.aligned))
    keys = party_keys(1, 2)
    parties = {at: Party(method, table, keys[at]) for at, table in tables.items()}
    engine = Watched(InProcess(parties))
    finish([method.train(who)], engine)
    (p,) = finish([method.predict(who, (0, 1))], engine)
    assert torch.allclose(p.sum(1), torch.ones(len(p)), atol=1e-5)
    assert Learn not in {type(request) for request, _ in engine.said}
    assert {reply.values.shape[1] for _, reply in engine.said} == {2}  # type: ignore[attr-defined]
    # a party that is asked again, also after a restart, says the same
    again = Party(method, tables[0, 1], keys[0, 1])
    again.restore(parties[0, 1].state())
    both = [some.handle(Embed("aligned")).values for some in (parties[0, 1], again)]  # type: ignore[attr-defined]
    assert torch.equal(*both)


def test_a_level_of_columns_that_there_is_not_is_refused() -> None:
    with pytest.raises(UserError, match="unknown level of columns 'fw'"):
        ProtoEVFL(columns="fw")
    with pytest.raises(UserError, match="few must be at least 1"):
        ProtoEVFL(columns="few", few=0)
