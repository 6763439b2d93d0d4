"""The release: bounded sensitivity whatever is sent, right variance, no label in its geometry."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from protoevfl.core.prototypes import membership
from protoevfl.core.transport import cosine
from protoevfl.privacy.defences.release import SENSITIVITY, coordinates, release, space
from protoevfl.privacy.policy import PrivacySettings

from ..world import CLASSES, embeddings


def silent(name: str, shape: tuple[int, ...]) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(0, 29),
    st.integers(0, 4),
    st.sampled_from([1e-30, 1.0, 1e30]),
)
def test_one_label_moves_the_sums_by_at_most_the_sensitivity(
    seed: int, row: int, label: int, size: float
) -> None:
    """For any embeddings, also of a malicious party."""
    g = torch.Generator().manual_seed(seed)
    f = torch.randn(30, 6, generator=g) * size * torch.rand(30, 1, generator=g) ** 8
    y = torch.randint(CLASSES, (30,), generator=g)
    other = y.clone()
    other[row] = label
    x = coordinates(f, *space(f, 4)[:2])
    sums = [membership(labels, CLASSES, x.dtype).T @ x for labels in (y, other)]
    assert float((sums[0] - sums[1]).norm()) <= SENSITIVITY + 1e-9


def test_without_noise_the_prototypes_point_to_their_classes() -> None:
    f, y = embeddings(0)
    mu = release(f, y, torch.ones(CLASSES), silent, sigma=0.0, rank=8)
    centre = f.mean(0)
    assert float((cosine(f - centre, mu - centre).argmax(1) == y).float().mean()) > 0.7


def test_noise_has_the_variance_it_is_charged_for() -> None:
    """Recovered from the sums: the same noise on rows that cancel out, so that the release is noise
    alone."""
    heard: list[Tensor] = []

    def listening(name: str, shape: tuple[int, ...]) -> Tensor:
        heard.append(
            torch.randn(
                shape, generator=torch.Generator().manual_seed(len(heard)), dtype=torch.float64
            )
        )
        return heard[-1]

    f, y = embeddings(1)
    noisy = release(f, y, torch.ones(CLASSES), listening, sigma=1e6, rank=8)
    centre = f.mean(0)
    assert heard[0].shape == (CLASSES, 8)
    directions = cosine(noisy.double() - centre, noisy.double() - centre)
    assert torch.allclose(directions, cosine(heard[0], heard[0]), atol=1e-3)


def test_withheld_classes_are_zero_and_rank_is_never_too_large() -> None:
    f, y = embeddings(2, rows=10)
    shown = torch.tensor([1.0, 0, 1, 1, 1])
    mu = release(f, y, shown, silent, sigma=0.0, rank=500)
    assert (mu[1] == 0).all()
    assert mu.isfinite().all()


@pytest.mark.parametrize(
    "f", [torch.zeros(10, 3), torch.full((10, 3), 1e30), torch.eye(10, 3) * 1e-30]
)
def test_degenerate_embeddings_give_finite_prototypes(f: Tensor) -> None:
    mu = release(f, torch.arange(10) % CLASSES, torch.ones(CLASSES), silent, sigma=0.0, rank=2)
    assert mu.isfinite().all()


def test_the_guess_bound_is_reached_by_an_attacker_who_knows_all_other_labels_and_by_none_better() -> (
    None
):
    """The bound is exact, not merely safe: 60 runs x 100 rows, three parties that pool what they
    have."""
    rows, classes, sigma, runs = 100, 10, 4.0, 60
    alone, joint = 0.0, 0.0
    for run in range(runs):
        g = torch.Generator().manual_seed(run)
        y = (torch.arange(rows) % classes)[torch.randperm(rows, generator=g)]
        member = membership(y, classes, torch.float64)
        scores = []
        for _ in range(3):
            f = torch.randn(rows, 30, generator=g)
            x = coordinates(f, *space(f, 16)[:2])
            sums = member.T @ x + sigma * torch.randn(classes, 16, generator=g, dtype=torch.float64)
            # what all other rows contribute
            others = (x @ x.T) @ member - (x * x).sum(1, keepdim=True) * member
            scores.append(x @ sums.T - others)
        alone += float((scores[0].argmax(1) == y).double().mean()) / runs
        joint += float((sum(scores).argmax(1) == y).double().mean()) / runs  # type: ignore[union-attr]
    policy = PrivacySettings(prototype_noise=sigma, releases=1)
    assert abs(alone - policy.guess_bound(rows, classes, 1)) < 0.015
    assert abs(joint - policy.guess_bound(rows, classes, 1, receivers=3)) < 0.015
