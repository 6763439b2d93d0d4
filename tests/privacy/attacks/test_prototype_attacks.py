"""Attacks on prototypes: exact where theory says so, no better than chance where nothing is told."""

import pytest
import torch

from protoevfl.core.prototypes import class_means
from protoevfl.privacy.attacks.chosen_embeddings import chosen_embeddings
from protoevfl.privacy.attacks.collusion import collusion
from protoevfl.privacy.attacks.linear_system import class_sizes, differenced, fresh, linear_system
from protoevfl.privacy.attacks.model_completion import model_completion
from protoevfl.privacy.attacks.nearest_prototype import nearest_prototype
from protoevfl.privacy.defences.noise import SeededNoise
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.protocol import asking
from protoevfl.privacy.scores import score
from protoevfl.privacy.view import Guess, Known, know, together, views

from ..world import CLASSES, ROWS, WIDTH, embeddings, transcript, view

NONE = Known(torch.full((ROWS,), -1))
BARE = PrivacySettings()


def best(guesses: dict[str, Guess], labels: torch.Tensor, known: Known = NONE) -> float:
    return max(score(g, labels, known, CLASSES).accuracy for g in guesses.values())


def test_linear_system_finds_random_labels() -> None:
    """3 x 24 numbers a class tell 100 labels: individual leakage, no class structure needed."""
    seen, labels = view(0, BARE, rounds=3, canary=True)
    assert best(linear_system(seen, NONE), labels) >= 0.95
    assert best(nearest_prototype(seen, NONE), labels) < 0.7


@pytest.mark.parametrize("rule", ["paper", "ema", "none"])
def test_running_sums_are_differenced_to_exact_means(rule: str) -> None:
    seen, labels = view(1, BARE, rounds=3, rule=rule)
    for release in fresh(seen):
        means, _ = class_means(release.f, labels, CLASSES)
        assert torch.allclose(release.mu, means, atol=1e-4)


def test_differencing_inverts_the_rules() -> None:
    before, mean = torch.ones(2, 3), torch.arange(6.0).view(2, 3)
    assert torch.allclose(differenced(before, before + 0.1 * mean, "paper", 0.1), mean, atol=1e-5)
    assert torch.allclose(differenced(before, 0.9 * before + 0.1 * mean, "ema", 0.1), mean, atol=1e-5)


def test_class_sizes_come_out_of_the_prototypes_alone() -> None:
    f, _ = embeddings(3)
    labels = torch.cat([torch.zeros(40), torch.arange(60) % 4 + 1]).long()
    means, counts = class_means(f.double(), labels, CLASSES)
    assert torch.allclose(class_sizes(f.double(), means), counts, rtol=0.05)


def test_known_labels_help() -> None:
    f, labels = embeddings(4, rows=400)
    seen = views(transcript(f, labels, BARE, 1), 400, CLASSES)[1]
    few, many = know(labels, 0, CLASSES, 0), know(labels, 40, CLASSES, 0)
    assert best(linear_system(seen, many), labels, many) > best(linear_system(seen, few), labels, few)


def test_colluding_parties_solve_what_one_cannot() -> None:
    """400 rows: 24 equations a class are too few, 72 are more."""
    members = []
    for party in range(3):
        f, labels = embeddings(10, rows=400)
        f = f @ torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(party)))[0]
        f = f + torch.randn(f.shape, generator=torch.Generator().manual_seed(party))
        said = [(party, q, r) for _, q, r in transcript(f, labels, BARE, 1)]
        members.append(views(said, 400, CLASSES, active=-1)[party])
    none = know(labels, 0, CLASSES, 0)
    alone = best(linear_system(members[0], none), labels, none)
    joint = best(collusion(together(members), none), labels, none)
    assert joint > alone + 0.1
    assert collusion(members[0], none) == {}


def test_chosen_embeddings_are_exact_without_a_defence_and_bounded_with_one() -> None:
    _, labels = embeddings(0)
    rounds = 5
    bare = chosen_embeddings(asking(BARE, labels, CLASSES, SeededNoise(0)), WIDTH, CLASSES, rounds, NONE)
    assert best(bare, labels) == 1.0
    settings = PrivacySettings(prototype_noise=4.0, releases=1, rank=16)
    rates = []
    for seed in range(8):
        owner = asking(settings, labels, CLASSES, SeededNoise(seed))
        rates.append(chosen_embeddings(owner, WIDTH, CLASSES, rounds, NONE, rank=16))
    means = [sum(score(r[name], labels, NONE, CLASSES).accuracy for r in rates) / 8 for name in rates[0]]
    assert max(means) <= settings.guess_bound(ROWS, CLASSES, rounds) + 0.04


def test_huge_chosen_embeddings_gain_nothing() -> None:
    _, labels = embeddings(0)
    settings = PrivacySettings(prototype_noise=4.0, releases=1, rank=16)
    owner = asking(settings, labels, CLASSES, SeededNoise(1))
    guesses = chosen_embeddings(owner, WIDTH, CLASSES, 1, NONE, magnitude=1e15, rank=16)
    assert best(guesses, labels) < 0.5


def test_completion_needs_labels_or_prototypes() -> None:
    seen, labels = view(0, BARE, rounds=0)
    assert model_completion(seen, NONE) == {}
    known = know(labels, 8, CLASSES, 0)
    assert best(model_completion(seen, known), labels, known) > 2 / CLASSES
