"""The sealed level: the same predictions with and without encryption, nothing but sums and scores
crosses, a party audits itself against steering, made-up and repeated messages are refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.federation import Federation, SimulatedRun, simulate
from protoevfl.federation.owner import Further, LabelOwner, OwnRows, build_owner
from protoevfl.federation.party import Party
from protoevfl.messages import (
    Describe,
    Embed,
    Embeddings,
    Message,
    MessageError,
    OpenedSums,
    OpenLabels,
    SealedLabels,
    SealedSums,
    SendFeatures,
    WarmUp,
    values,
)
from protoevfl.methods import forest, own_trees, sealed
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.methods.sealed_grain import MOST_LEVELS
from protoevfl.privacy.gives_away import SelfAuditError, columns_of, gives_away
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.summed_rows import FOLDS
from protoevfl.rows.table import PartyTable
from protoevfl.settings.presets import build, presets

SHARED, POOL, QUERY, FURTHER = 60, 300, 200, 12
SPANS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 7), (7, 10))
NUMBERS = (0, 1, 2, 3)
WIDE = {"sealed.most_of_number": 1.0, "sealed.most_of_category": 1.0}


def party_rows(labels: Tensor, seed: int) -> Tensor:
    """Four numbers and two categories of three values; all but the last number depend on the
    label."""
    source = torch.Generator().manual_seed(seed)
    numbers = torch.randn(len(labels), 4, generator=source)
    numbers[:, :3] += 0.7 * (labels[:, None] == torch.arange(1, 4).clamp(max=2))
    parts = [numbers]
    for _ in range(2):
        drawn = torch.randint(3, (len(labels),), generator=source)
        kept = torch.rand(len(labels), generator=source) < 0.3
        codes = torch.where(kept, labels.clamp(max=2), drawn)
        parts.append(torch.nn.functional.one_hot(codes, 3))
    return torch.cat(parts, 1).float()


def world(classes: int = 2, further: int = 0) -> tuple[list[PartyTable], LabelOwner, Tensor]:
    """Three parties, the labels of all rows of the first one, and the labels of the query rows."""
    source = torch.Generator().manual_seed(classes)
    shared = torch.randint(classes, (SHARED,), generator=source)
    more = torch.randint(classes, (FURTHER,), generator=source)[:further]
    query = torch.randint(classes, (QUERY,), generator=source)
    tables = []
    for m in range(3):
        pool = torch.randint(classes, (POOL,), generator=source)
        parts = [party_rows(y, 10 * m + i) for i, y in enumerate((pool, shared, query, more))]
        tables.append(PartyTable(f"party {m}", *parts[:3], SPANS, NUMBERS, parts[3]))
        if not m:
            own_labels = torch.cat([shared, more, pool])
    owner = build_owner(shared, classes, 3, seed=5)
    active = tables[0]
    rows = torch.cat([active.aligned, active.further, active.pool])  # type: ignore[list-item]
    owner.own = OwnRows(rows, own_labels, active.query, SHARED + further)
    if further:
        has = torch.ones(3, further, dtype=torch.bool)
        has[1, ::2] = False
        tables[1] = replace(tables[1], further=tables[1].further[1::2])  # type: ignore[index]
        owner.further = Further(more, has)
    return tables, owner, query


def method(**overrides: Any) -> ProtoEVFL:
    built = build("proto_evfl", "sealed", "table", overrides)
    assert isinstance(built, ProtoEVFL)
    return built


def run(
    encrypt: bool = False,
    classes: int = 2,
    further: int = 0,
    engine: str = "loop",
    epsilon: float | None = None,
    own: bool = True,
    sigma: float = 0.0,
    **overrides: Any,
) -> Federation:
    tables, owner, _ = world(classes, further)
    if not own:
        owner.own = owner.further = None
    privacy = PrivacySettings(label_epsilon=epsilon, encrypt=encrypt, sum_noise=sigma)
    federation = simulate(
        method(**overrides), [SimulatedRun(tables, owner, 3)], privacy, engine=engine, record=True
    )
    federation.train()
    return federation


@pytest.fixture(autouse=True)
def _few_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_trees, "BOOSTING", ({"max_iter": 5, "min_samples_leaf": 5},))
    monkeypatch.setattr(forest, "TREES", 8)


def crossed(federation: Federation) -> list[tuple[str, str]]:
    assert federation.border.recorded is not None
    transcript = federation.border.recorded.transcript
    return [(type(q).__name__, type(a).__name__) for _, party, q, a in transcript if party]


# ---------------------------------------------------------------- the run


def test_there_is_a_preset_and_it_declares_what_crosses() -> None:
    assert "sealed" in presets("proto_evfl")
    assert method().exchanges == (
        (SealedLabels, SealedSums),
        (OpenedSums, Embeddings),
        (Embed, Embeddings),
    )


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_encrypted_and_plain_runs_predict_the_same_bit_for_bit(sigma: float) -> None:
    """With further rows, which not every pair shares, randomised labels, with noise and without."""
    pytest.importorskip("gmpy2")
    plain, encrypted = (
        run(encrypt, further=FURTHER, epsilon=2.0, sigma=sigma) for encrypt in (False, True)
    )
    for name in ("embeddings", "further"):
        assert torch.equal(plain.owners[0].memory[name], encrypted.owners[0].memory[name])
    assert torch.equal(plain.predict()[0], encrypted.predict()[0])
    assert set(crossed(encrypted)) == {
        ("SealedLabels", "SealedSums"),
        ("OpenedSums", "Embeddings"),
        ("Embed", "Embeddings"),
    }


@pytest.mark.parametrize("sigma", [0.0, 0.2])
def test_the_stacked_engine_gives_the_same_scores(sigma: float) -> None:
    pytest.importorskip("gmpy2")
    loop = run(classes=3, sigma=sigma)
    stacked = run(encrypt=True, classes=3, engine="stacked", sigma=sigma)
    torch.testing.assert_close(
        loop.owners[0].memory["embeddings"], stacked.owners[0].memory["embeddings"]
    )


def test_members_that_are_told_another_noise_answer_as_they_would_alone() -> None:
    """The stacked engine asks them apart."""
    tables, owner, _ = world()
    rows = {(0, m): replace(tables[m], name="p") for m in (1, 2)}
    keys = {address: rnd.key(3, address[1]) for address in rows}
    asked = replace(open_labels(owner.labels), sigma=0.1, noise="00" * 32)
    steered = replace(asked, labels=tables[2].aligned[:, 4].long(), noise="01" * 32)
    requests: dict[tuple[int, int], Message] = {(0, 1): asked, (0, 2): steered}
    replies = Stacked(method(), rows, keys).exchange(requests)
    for at, request in requests.items():
        alone = values(Party(method(), rows[at], keys[at]).handle(request))
        torch.testing.assert_close(values(replies[at]), alone)
    coarse = Party(method(**{"sealed.levels": 2}), rows[0, 1], 3)
    coarse.handle(asked)
    assert coarse.memory["sealed.levels"].shape == (1, 1, MOST_LEVELS), (
        "of one shape, however coarse"
    )


def test_joining_helps_and_any_subset_of_parties_predicts() -> None:
    """Bound .4: of 300 own rows and four numbers, three of which make the score, less is not much."""
    federation = run(**{"sealed.most_of_number": 0.4})
    _, _, truth = world()

    def log_likelihood(present: tuple[int, ...]) -> float:
        (p,) = federation.predict(present)
        torch.testing.assert_close(p.sum(1), torch.ones(len(p)))
        return float(p.gather(1, truth[:, None]).log().mean())

    guessed = float(torch.tensor(0.5).log())
    assert log_likelihood((0, 1, 2)) > log_likelihood((0,)) + 0.03
    assert log_likelihood((1,)) > guessed + 0.01
    assert log_likelihood((1, 2)) > guessed + 0.03


def test_without_labels_of_its_own_the_active_party_s_features_take_part() -> None:
    federation = run(own=False)
    (p,) = federation.predict()
    _, _, truth = world()
    assert float((p.argmax(1) == truth).float().mean()) > 0.6
    assert all(kind != "OwnFeatures" for kind, _ in crossed(federation))


def test_what_is_sent_has_few_values_and_one_number_for_two_classes() -> None:
    federation = run()
    for m in (1, 2):
        sent = federation.query_embeddings()[m]
        assert sent.shape == (QUERY, 1)
        assert len(sent.unique()) <= 5
    assert run(classes=3).query_embeddings()[1].shape == (QUERY, 3)


def test_a_shared_row_is_scored_without_its_own_label() -> None:
    """Another label of row 0 leaves the direction that scores its fold as it is, and no other; how
    far directions are pushed away from columns is decided for all of them together."""
    tables, _, _ = world()
    directions = []
    for first in (0, 1):
        labels = (torch.arange(SHARED) % 3 == 0).long()
        labels[0] = first
        mine = Party(method(**WIDE), tables[1], 3)
        mine.handle(open_labels(labels))
        directions.append(mine.memory["sealed.directions"][0])
    same = [torch.equal(*pair) for pair in zip(*directions, strict=True)]
    assert same == [True] + [False] * FOLDS


def test_of_noisy_sums_one_direction_is_made_and_its_scale_is_forgotten() -> None:
    mine = party(**WIDE)
    asked = replace(open_labels(world()[1].labels), sigma=1.0, noise="00" * 32)
    mine.handle(asked)
    assert mine.memory["sealed.directions"].shape[1] == 1
    assert not {"sealed.root", "sealed.length"} & mine.memory.keys()
    other = party(**WIDE)
    other.handle(replace(asked, noise="01" * 32))
    assert not torch.equal(mine.memory["sealed.directions"], other.memory["sealed.directions"])


@pytest.mark.parametrize("rare", [0, 1])
def test_in_noisy_scores_a_row_s_own_label_adds_one_on_average(rare: int) -> None:
    """Whichever class is the rarer one, which decides where the score points."""
    labels = torch.where(torch.arange(SHARED) % 3 == 0, rare, 1 - rare)
    asked = replace(open_labels(labels), sigma=1.0, noise="00" * 32)

    def scores(labels: Tensor) -> Tensor:
        mine = party(**WIDE, **{"sealed.levels": 0})
        return values(mine.handle(replace(asked, labels=labels)))[:, 0]

    before, grown = scores(labels), []
    for row in range(0, SHARED, 4):
        other = labels.clone()
        other[row] = 1 - labels[row]
        grown.append((scores(other) - before)[row] / (other - labels)[row])
    assert 0.6 < float(torch.stack(grown).mean()) < 1.4
    assert min(map(float, grown)) > 0


@pytest.mark.parametrize("classes", [2, 3])
def test_the_owner_takes_off_what_own_labels_added(classes: int) -> None:
    """Randomised labels were summed: those count, not the true ones."""
    _, owner, _ = world(classes)
    summed = (owner.labels + torch.arange(SHARED) % 2) % classes
    honest = torch.randn(SHARED, 1 if classes == 2 else classes)
    one_hot = torch.nn.functional.one_hot(summed, classes).float()
    sent = {1: honest + (one_hot[:, 1:] if classes == 2 else one_hot)}
    assert sealed.without_own_labels(owner, sent) is sent, (
        "of exact sums there is nothing to take off"
    )
    owner.memory["guard.summed"] = summed
    left = sealed.without_own_labels(owner, sent)[1]
    torch.testing.assert_close(left.std(0), torch.full_like(left[0], sealed.SPREAD))
    new = torch.stack([torch.zeros_like(honest), honest, torch.zeros_like(honest)])
    torch.testing.assert_close(sealed.of_one_spread(owner, new)[1], left)


def test_a_score_that_says_nothing_is_not_made_into_the_label() -> None:
    _, owner, _ = world()
    owner.memory["guard.summed"] = owner.labels
    left = sealed.without_own_labels(owner, {1: torch.zeros(SHARED, 1)})[1]
    assert not left.any()


def test_noise_below_zero_is_no_message() -> None:
    with pytest.raises(MessageError, match="sigma"):
        SealedLabels(-1.0, *[torch.zeros(1)] * 4)


def test_a_class_without_labels_needs_the_open_level() -> None:
    tables, owner, _ = world(classes=3)
    with pytest.raises(UserError, match="open level"):
        simulate(
            method(),
            [SimulatedRun(tables, replace(owner, unseen=(2,)), 3)],
            PrivacySettings(),
            engine="loop",
        ).train()


def test_a_party_that_is_away_is_done_without() -> None:
    tables, owner, _ = world()

    class Away:
        def __init__(self, parties: Any) -> None:
            self.parties = parties

        def exchange(self, requests: Any) -> Any:
            return self.parties.exchange({a: r for a, r in requests.items() if a[1] != 2})

    runs = [SimulatedRun(tables, owner, 3)]
    federation = simulate(method(), runs, PrivacySettings(), engine="loop", around=Away)
    federation.on_party_loss = "skip"
    federation.train()
    assert owner.memory["usable"].tolist() == [True, True, False]
    (p,) = federation.predict()
    torch.testing.assert_close(p.sum(1), torch.ones(len(p)))


# ---------------------------------------------------------------- what a party refuses


def open_labels(labels: Tensor, classes: int = 2) -> OpenLabels:
    return OpenLabels(torch.arange(len(labels)), labels, torch.ones(classes))


def party(**overrides: Any) -> Party:
    return Party(method(**overrides), world()[0][1], 3)


@pytest.mark.parametrize("request_", [WarmUp(), SendFeatures(), Describe(1), Embed("aligned")])
def test_a_sealed_party_answers_no_open_request(request_: Message) -> None:
    with pytest.raises(MessageError, match="not answered at the sealed level"):
        party().handle(request_)


def test_before_training_the_answer_is_empty() -> None:
    assert not values(party().handle(Embed("query"))).any()


def test_labels_are_summed_once_and_opened_after_that() -> None:
    mine = party()
    with pytest.raises(MessageError, match="without sealed ones"):
        mine.handle(OpenedSums(torch.zeros(5, 1, 256, dtype=torch.uint8)))
    labels = world()[1].labels
    mine.handle(open_labels(labels))
    with pytest.raises(MessageError, match="summed already"):
        mine.handle(open_labels(1 - labels))


def test_labels_for_another_number_of_rows_are_refused() -> None:
    with pytest.raises(MessageError, match="59 labels for 60 shared rows"):
        party().handle(open_labels(world()[1].labels[1:]))


def one_of_two(rows: Tensor) -> Tensor:
    """The first value of the first category against the rest."""
    return torch.cat([rows[:, 4:5], 1 - rows[:, 4:5]], 1)


def narrow(table: PartyTable, numbers: int) -> PartyTable:
    """So many numbers of a party, and the first category with two values."""

    def part(rows: Tensor) -> Tensor:
        return torch.cat([rows[:, :numbers], one_of_two(rows)], 1)

    parts = map(part, (table.pool, table.aligned, table.query))
    return PartyTable("p", *parts, (*SPANS[:numbers], (numbers, numbers + 2)), NUMBERS[:numbers])


def test_scores_steered_to_the_only_column_are_refused_and_the_reason_stays_inside() -> None:
    """Suppose the owner knows the column of the shared rows: labels made of it turn the direction
    there, and there is no other."""
    table = world()[0][1]
    mine = Party(method(), narrow(table, 0), 3)
    with pytest.raises(SelfAuditError, match="'column 1'"):
        mine.handle(open_labels(table.aligned[:, 4].long()))
    assert not values(mine.handle(Embed("query"))).any(), "nothing was learnt"


def test_scores_steered_to_a_category_among_others_are_turned_away_from_it() -> None:
    table = world()[0][1]
    steered = open_labels(table.aligned[:, 4].long())
    mine = Party(method(), narrow(table, 4), 3)
    mine.handle(steered)
    own = narrow(table, 4)
    columns = columns_of(own.query, own.spans, own.numbers)
    assert gives_away(columns, values(mine.handle(Embed("query"))))["column 5"] < 0.6
    unguarded = Party(method(**WIDE), own, 3)
    unguarded.handle(steered)
    assert gives_away(columns, values(unguarded.handle(Embed("query"))))["column 5"] > 0.8


def test_a_number_that_is_steered_to_stays_within_the_bound() -> None:
    table = world()[0][1]
    mine = Party(method(), table, 3)
    mine.handle(open_labels((table.aligned[:, 3] > 0).long()))
    sent = values(mine.handle(Embed("query")))
    found = gives_away(columns_of(table.query, SPANS, NUMBERS), sent)
    assert found["column 4"] < 0.55


def test_too_few_rows_to_audit_are_refused() -> None:
    table = world()[0][1]
    few = replace(table, pool=table.pool[:4], aligned=table.aligned[:6])
    with pytest.raises(SelfAuditError, match="too few"):
        Party(method(), few, 3).handle(open_labels(torch.arange(6) % 2))


def test_the_scikit_learn_class_fits_keeps_and_predicts(tmp_path: Any) -> None:
    from protoevfl import ProtoEVFLClassifier

    tables, owner, truth = world()
    parties = {t.name: t.aligned.numpy() for t in tables}
    pools = {t.name: t.pool.numpy() for t in tables}
    assert owner.own is not None
    model = ProtoEVFLClassifier(preset="sealed", progress=False, device="cpu")
    model.fit(parties, owner.labels.numpy(), pools, owner.own.labels[SHARED:].numpy())
    query = {t.name: t.query.numpy() for t in tables}
    assert model.score(query, truth.numpy()) > 0.6
    model.save(tmp_path / "run")
    again = ProtoEVFLClassifier.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(query), model.predict_proba(query))
