"""Figures from recordings: every attacker once, nothing where nothing crossed, numbers that can be
checked by hand."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from protoevfl.audit import figures
from protoevfl.audit.figures import (
    cases,
    columns,
    extra,
    findings,
    inversion,
    pools,
    seen_by,
    threats,
    utility,
    width_of,
)
from protoevfl.audit.record import Recording
from protoevfl.bench.world import RunConfig
from protoevfl.core import random as rnd
from protoevfl.core.prototypes import class_means
from protoevfl.federation.owner import LabelOwner
from protoevfl.messages import (
    Describe,
    Embeddings,
    Learn,
    Learned,
    Message,
    Statistics,
    WarmUp,
)
from protoevfl.privacy.attacks.inversion import invert
from protoevfl.privacy.ledger import Ledger
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.rows.table import PartyTable

ROWS, WIDTH, CLASSES, POOL = 30, 6, 3, 20
NONE, GUARD = PrivacySettings(), PrivacySettings(prototype_noise=4.0, releases=1, rank=2)
CONFIG = RunConfig(overrides={"rounds.update": "ema", "rounds.rho": 0.25})


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trained decoder is tested elsewhere; the ridge decoder needs no steps."""
    monkeypatch.setattr(figures, "invert", partial(invert, steps=1))


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def embeddings(seed: int, party: int) -> Tensor:
    labels = torch.arange(ROWS) % CLASSES
    return normal(100 * seed + party, ROWS, WIDTH) + 3 * torch.eye(CLASSES, WIDTH)[labels]


def said(seed: int, parties: int, rounds: int = 1) -> list[tuple[int, Message, Message]]:
    """A warm-up, then rounds in which every party is sent the class means of its embeddings."""
    labels, prior = torch.arange(ROWS) % CLASSES, torch.full((CLASSES,), 1 / CLASSES)
    found: list[tuple[int, Message, Message]] = []
    for party in range(parties):
        f = embeddings(seed, party)
        found.append((party, WarmUp(), Embeddings(f)))
        for number in range(rounds):
            mu, counts = class_means(f, labels, CLASSES)
            found.append((party, Learn(number, mu, (counts > 0).float(), prior), Learned(f, prior)))
    return found


def recording(
    seed: int = 0, parties: int = 3, rows: Tensor | None = None, spans: Any = None, **parts: Any
) -> Recording:
    labels = torch.arange(ROWS) % CLASSES
    rows = normal(seed, ROWS, WIDTH) if rows is None else rows
    table = PartyTable("party", rows[:1], rows, rows[:1], spans=spans)
    owner = LabelOwner(labels, CLASSES, tuple(range(parties)), rnd.key(seed, "owner"))
    world: Any = SimpleNamespace(
        owner=owner, tables=[table] * parties, labels=SimpleNamespace(aligned=labels)
    )
    numbers: dict[str, Any] = {
        "metrics": {"accuracy": 0.5},
        "crossed": {"up": 7, "down": 5},
        "pseudo_labels": {},
    }
    numbers |= {"transcript": said(seed, parties), **parts}
    own = {m: embeddings(seed, m) for m in range(parties)}
    pool = {m: normal(seed + 50, POOL, WIDTH) for m in range(parties)}
    return Recording(
        seed=seed, world=world, exchanges=2, ledger=Ledger(), own=own, pool=pool, **numbers
    )


def pair(parties: int = 3) -> list[Recording]:
    return [recording(seed, parties) for seed in (0, 1)]


def silent(parties: int = 3) -> list[Recording]:
    return [recording(seed, parties, transcript=said(seed, parties, rounds=0)) for seed in (0, 1)]


def test_one_case_for_each_seed_and_passive_party(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "POOL_ROWS", 4)
    groups = cases(pair(), silent(), CONFIG, NONE)
    assert [[case.seed for case in group] for group in groups] == [[0, 0], [1, 1]]
    for group in groups:
        assert [case.view.parties for case in group] == [(1,), (2,)]
        for party, case in enumerate(group, 1):
            assert torch.equal(case.view.own[party], embeddings(case.seed, party))
            assert torch.equal(case.view.wide[party], embeddings(case.seed, party))
            assert len(case.view.pool[party]) == 4
            assert case.labels.tolist() == [i % CLASSES for i in range(ROWS)]


def test_what_is_public_about_the_method_depends_on_the_guard() -> None:
    bare = cases(pair(), silent(), CONFIG, NONE)[0][0].view
    assert (bare.update, bare.rho, bare.rank) == ("ema", 0.25, None)
    guarded = cases(pair(), silent(), CONFIG, GUARD)[0][0].view
    assert (guarded.update, guarded.rank) == ("none", 2)


def test_an_attacker_that_received_nothing_still_has_its_own_rows() -> None:
    quiet = [replace(one, transcript=[]) for one in pair()]
    for group in cases(quiet, silent(), CONFIG, NONE):
        for party, case in enumerate(group, 1):
            assert case.view.exchanges == ()
            assert set(case.view.own) == {party}
            assert case.view.rows == ROWS


def test_recordings_and_yardsticks_must_be_of_the_same_seeds() -> None:
    with pytest.raises(ValueError, match="shorter"):
        cases(pair(), silent()[:1], CONFIG, NONE)


def test_nobody_sees_the_active_partys_messages_or_anothers() -> None:
    seen = seen_by(recording())
    assert set(seen) == {1, 2}
    assert all({e.party for e in view.exchanges} == {party} for party, view in seen.items())


@pytest.mark.parametrize(
    ("parties", "rounds", "expected"),
    [
        (3, 1, {"passive": 4, "colluding": 2, "malicious": 2}),
        (2, 1, {"passive": 2, "malicious": 2}),
        (3, 0, {"passive": 4, "colluding": 2}),
        (2, 0, {"passive": 2}),
    ],
)
def test_the_attackers_of_each_threat(parties: int, rounds: int, expected: dict[str, int]) -> None:
    groups = cases(pair(parties), silent(parties), CONFIG, NONE)
    found = threats(groups, rounds)
    assert {threat: len(some) for threat, some in found.items()} == expected
    if "colluding" in found:
        assert found["colluding"][0].view.parties == (1, 2)


def test_the_width_is_that_of_prototypes_or_of_own_rows_where_there_are_none() -> None:
    assert width_of(cases(pair(), silent(), CONFIG, NONE)) == WIDTH
    narrow = [replace(one, own={m: f[:, :4] for m, f in one.own.items()}) for one in silent()]
    quiet = [replace(one, transcript=[]) for one in pair()]
    assert width_of(cases(quiet, narrow, CONFIG, NONE)) == 4


def test_every_threat_at_every_k_and_class_means_give_labels_away() -> None:
    groups = cases(pair()[:1], silent()[:1], CONFIG, NONE)
    found = findings(groups, NONE, 1, (0, 1))
    assert [(f.known, f.threat) for f in found] == [
        (k, threat) for k in (0, 1) for threat in ("passive", "colluding", "malicious")
    ]
    assert all(len(f.worst.by_seed) == 1 for f in found)
    assert found[0].worst.accuracy > 0.6


def test_attacks_find_the_same_every_time() -> None:
    one, other = (
        findings(cases(pair(2), silent(2), CONFIG, NONE), NONE, 0, (1,)) for _ in range(2)
    )
    assert [f.lines for f in one] == [f.lines for f in other]


def test_only_a_malicious_party_does_more_than_study() -> None:
    assert extra("passive", NONE, WIDTH, 1) is None
    assert extra("colluding", NONE, WIDTH, 1) is None
    assert extra("malicious", NONE, WIDTH, 1) is not None


def test_rows_that_are_a_function_of_embeddings_are_rebuilt_and_others_are_not() -> None:
    matrix = normal(9, WIDTH, 5)
    told = [recording(seed, rows=embeddings(seed, 1) @ matrix) for seed in (0, 1)]
    found = inversion(told)
    assert found["ridge decoder"]["mse"] < 0.5 * found["mean row"]["mse"]
    free = inversion([recording(seed, rows=normal(seed + 77, ROWS, 5)) for seed in (0, 1)])
    assert free["ridge decoder"]["mse"] > 0.7 * free["mean row"]["mse"]
    assert "ssim" not in found["mean row"]
    assert inversion(told) == found


def test_bytes_of_images_are_scaled_and_compared_as_images() -> None:
    pixels = (60 * normal(3, ROWS, 1, 4, 4) + 128).clamp(0, 255).to(torch.uint8)
    found = inversion([recording(rows=pixels)])
    assert 0 < found["mean row"]["mse"] < 1
    assert -1 <= found["mean row"]["ssim"] <= 1


def test_columns_are_scaled_before_they_are_compared() -> None:
    rows = normal(4, ROWS, 5)
    found, moved = inversion([recording(rows=rows)]), inversion([recording(rows=8 * rows - 5)])
    assert found["mean row"]["mse"] == pytest.approx(moved["mean row"]["mse"], rel=1e-4)
    assert found["ridge decoder"]["mse"] == pytest.approx(moved["ridge decoder"]["mse"], rel=1e-4)


def test_figures_are_means_over_seeds() -> None:
    one, other = (recording(seed, rows=normal(seed + 5, ROWS, 4)) for seed in (0, 1))
    both = inversion([one, other])["mean row"]["mse"]
    assert both == pytest.approx(
        (inversion([one])["mean row"]["mse"] + inversion([other])["mean row"]["mse"]) / 2
    )


def test_columns_within_the_embeddings_are_rebuilt_by_name() -> None:
    f = embeddings(0, 1)
    value = (f[:, 3] > 0).float()
    rows = torch.stack([f[:, 4], value, 1 - value, torch.full((ROWS,), 2.0)], 1)
    spans = ((0, 1), (1, 3), (3, 4))
    names = {1: ("pay", "town", "always")}
    found = columns([recording(parties=2, rows=rows, spans=spans)], names)["party"]
    assert list(found) == ["pay", "town", "always"]
    assert found["pay"]["from what it sends"] > 0.6 > found["pay"]["from the label alone"]
    assert found["town"]["from what it sends"] > found["town"]["from the label alone"]
    assert found["always"]["from what it sends"] == 0


def test_images_have_no_columns_to_rebuild() -> None:
    assert columns([recording()], {}) == {}


def test_statistics_of_the_pool_are_held_against_its_rows() -> None:
    inside, outside = normal(1, 40, 3), normal(2, 40, 3)
    ones = torch.ones(1, 40)
    exact = Statistics(inside[None], inside[None].abs(), ones, torch.ones(1))
    sent = [(1, Describe(0), exact)]
    found = pools([recording(transcript=sent, described={1: (inside, outside)})])["party"]
    assert (found["auc"], found["matched"]) == (1.0, 1.0)
    assert pools([recording()]) == {}


@pytest.mark.parametrize(
    "transcript", [[], said(0, 1)], ids=["nothing at all", "the active party alone"]
)
def test_where_nothing_crossed_nothing_is_rebuilt_or_inferred(transcript: list[Any]) -> None:
    quiet = [recording(transcript=transcript, spans=((0, WIDTH),))]
    assert inversion(quiet) == {}
    assert columns(quiet, {}) == {}


def test_utility_is_the_mean_over_seeds_and_leaves_the_active_party_out() -> None:
    rates = [{0: 1.0, 1: 0.2, 2: 0.4}, {0: 1.0, 1: 0.4, 2: 0.6}]
    made = [
        recording(seed, metrics={"accuracy": accuracy}, pseudo_labels=some)
        for seed, (accuracy, some) in enumerate(zip((0.5, 0.75), rates, strict=True))
    ]
    found = utility(made)
    assert found["accuracy"][0] == pytest.approx(0.625)
    assert found["by_seed"] == [0.5, 0.75]
    assert found["pseudo_labels"][0] == pytest.approx(0.4)
    assert found["useful"] is True  # 0.4 against a third
    assert (found["bytes_down"], found["bytes_up"]) == (5, 7)


def test_pseudo_labels_no_better_than_chance_are_not_useful_and_none_are_none() -> None:
    assert utility([recording(pseudo_labels={0: 1.0, 1: 0.35})])["useful"] is False
    found = utility([recording()])
    assert found["pseudo_labels"] is None
    assert found["useful"] is None
