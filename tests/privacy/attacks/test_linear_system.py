"""The linear system of prototypes: exact where theory says so, individual labels without any class
structure."""

import pytest
import torch

from protoevfl.core.prototypes import class_means
from protoevfl.privacy.attacks.linear_system import class_sizes, differenced, fresh, linear_system
from protoevfl.privacy.attacks.nearest_prototype import nearest_prototype
from protoevfl.privacy.view import know, views

from ..world import BARE, CLASSES, NONE, best, embeddings, transcript, view


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
    assert torch.allclose(
        differenced(before, 0.9 * before + 0.1 * mean, "ema", 0.1), mean, atol=1e-5
    )


def test_class_sizes_come_out_of_the_prototypes_alone() -> None:
    f, _ = embeddings(3)
    labels = torch.cat([torch.zeros(40), torch.arange(60) % 4 + 1]).long()
    means, counts = class_means(f.double(), labels, CLASSES)
    assert torch.allclose(class_sizes(f.double(), means), counts, rtol=0.05)


def test_an_owner_that_says_nothing_leaves_equal_sizes() -> None:
    f, _ = embeddings(3)
    sizes = class_sizes(f.double(), torch.zeros(CLASSES, f.shape[1], dtype=torch.float64))
    assert torch.allclose(sizes, torch.full_like(sizes, len(f) / CLASSES))


def test_known_labels_help() -> None:
    f, labels = embeddings(4, rows=400)
    seen = views(transcript(f, labels, BARE, 1), 400, CLASSES)[1]
    few, many = know(labels, 0, CLASSES, 0), know(labels, 40, CLASSES, 0)
    assert best(linear_system(seen, many), labels, many) > best(
        linear_system(seen, few), labels, few
    )
