"""Learners against slow, obvious references."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.privacy.learners import (
    centroids,
    kmeans,
    memberships,
    onto_simplex,
    ridge,
    spread_labels,
)

from .world import CLASSES, embeddings


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6))
def test_projection_is_the_nearest_point_of_the_simplex(values: list[float]) -> None:
    v = torch.tensor(values, dtype=torch.float64)
    p = onto_simplex(v)
    assert abs(float(p.sum()) - 1) < 1e-9
    assert float(p.min()) >= 0
    g = torch.Generator().manual_seed(0)
    others = torch.rand(200, len(values), generator=g, dtype=torch.float64).softmax(1)
    corners = torch.eye(len(values), dtype=torch.float64)
    assert (
        float((v - p).norm()) <= float((v - torch.cat([others, corners])).norm(dim=1).min()) + 1e-9
    )


def test_memberships_of_an_exact_system() -> None:
    g = torch.Generator().manual_seed(0)
    a = torch.randn(20, 30, generator=g, dtype=torch.float64)
    truth = torch.eye(4, dtype=torch.float64)[torch.randint(4, (20,), generator=g)]
    w = memberships(
        a, a.T @ truth, torch.full((20,), -1), torch.full((20, 4), 0.25, dtype=torch.float64), 2000
    )
    assert torch.allclose(w, truth, atol=1e-2)


def test_kmeans_finds_separate_groups() -> None:
    x = torch.cat(
        [
            torch.randn(30, 2, generator=torch.Generator().manual_seed(i)) * 0.1 + 5 * i
            for i in range(3)
        ]
    )
    centres = kmeans(x, 3).sort(0).values
    assert torch.allclose(centres, torch.tensor([[0.0, 0], [5, 5], [10, 10]]), atol=0.1)


def test_classifiers_beat_chance_and_respect_seeds() -> None:
    f, labels = embeddings(0, spread=1.0)
    some = torch.arange(25)
    for classify in (ridge, centroids):
        guess = classify(f[some], labels[some], CLASSES, f).argmax(1)
        assert float((guess == labels).float().mean()) > 0.8
    known = torch.full_like(labels, -1)
    known[some] = labels[some]
    assert float((spread_labels(f, known, CLASSES).argmax(1) == labels).float().mean()) > 0.8
