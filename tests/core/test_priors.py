"""Prior EM and mixing: against a loop, invariants, recovery of a known prior, extreme values."""

import math

import pytest
import torch
from torch import Tensor

from protoevfl.core.priors import (
    _smooth,
    _uniform_like,
    estimate,
    mix,
    mixing_ratio,
    pseudo_label_counts,
)


def scores(*shape: int) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def slow_estimate(s: list[list[float]], steps: int, a: float, w: list[float]) -> list[float]:
    classes = len(s[0])
    p = [1 / classes] * classes
    for _ in range(steps):
        mean = [0.0] * classes
        for row, weight in zip(s, w):
            e = [pz * math.exp(x) for pz, x in zip(p, row)]
            mean = [m + weight * x / sum(e) / sum(w) for m, x in zip(mean, e)]
        p = [(m + a) / (1 + a * classes) for m in mean]
    return p


@pytest.mark.parametrize("smoothing", [0.0, 0.02])
def test_estimate_equals_the_slow_loop(smoothing: float) -> None:
    s = scores(9, 4)
    w = torch.arange(9).double()
    slow = slow_estimate(s.tolist(), 6, smoothing, w.tolist())
    assert estimate(s, 6, smoothing, w).tolist() == pytest.approx(slow)
    slow = slow_estimate(s.tolist(), 6, smoothing, [1.0] * 9)
    assert estimate(s, 6, smoothing).tolist() == pytest.approx(slow)


def test_sums_to_one_and_permutes_with_the_classes() -> None:
    s = scores(3, 20, 5)
    p = estimate(s, 10, 0.01)
    torch.testing.assert_close(p.sum(-1), torch.ones(3).double())
    order = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(estimate(s[..., order], 10, 0.01), p[:, order])


def test_batched_equals_looped() -> None:
    s = scores(3, 20, 5)
    for one, row in zip(s, estimate(s, 10, 0.01)):
        torch.testing.assert_close(estimate(one, 10, 0.01), row)


def test_recovers_the_prior_of_a_known_mixture() -> None:
    """Scores that are true log-likelihoods: EM converges to the shares of the classes in the
    pool."""
    g = torch.Generator().manual_seed(0)
    true = torch.tensor([0.7, 0.2, 0.1])
    y = torch.multinomial(true, 4000, replacement=True, generator=g)
    x = 2.0 * y + torch.randn(4000, generator=g)
    s = -((x[:, None] - 2.0 * torch.arange(3)) ** 2) / 2
    torch.testing.assert_close(estimate(s, 100, 0.0), true, atol=0.03, rtol=0)


def test_smoothing_keeps_every_class_alive() -> None:
    s = torch.zeros(10, 4)
    s[:, 0] = 500.0
    assert estimate(s, 5, 0.0)[1] == 0
    assert estimate(s, 5, 0.01).min() >= 0.01 / 1.04 * (1 - 1e-6)
    torch.testing.assert_close(_smooth(torch.tensor([1.0, 0.0]), 0.5), torch.tensor([0.75, 0.25]))


def test_huge_scores_one_class_one_row_no_steps_no_weight() -> None:
    assert torch.isfinite(estimate(scores(5, 3).float() * 1e30, 5, 0.01)).all()
    torch.testing.assert_close(estimate(scores(5, 1), 3, 0.01), torch.ones(1).double())
    torch.testing.assert_close(estimate(scores(1, 3), 3, 0.0).sum(), torch.tensor(1.0).double())
    s = scores(2, 5, 3)
    torch.testing.assert_close(estimate(s, 0, 0.1), _uniform_like(s))
    w = torch.zeros(2, 5).double()
    w[1] = 1
    p = estimate(s, 4, 0.01, w)
    torch.testing.assert_close(p[0], _uniform_like(s)[0])
    torch.testing.assert_close(p[1], estimate(s[1], 4, 0.01))


def test_gradient() -> None:
    s = scores(2, 4, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: estimate(x, 3, 0.01), [s])


def test_pseudo_label_counts_equal_a_count() -> None:
    s, p = scores(2, 30, 4), torch.tensor([0.7, 0.1, 0.1, 0.1], dtype=torch.float64)
    counts = pseudo_label_counts(s, p)
    for g in range(2):
        best = [max(range(4), key=lambda z: float(row[z] + p[z].log())) for row in s[g]]
        assert counts[g].tolist() == [best.count(z) for z in range(4)]
    w = torch.rand(2, 30).double()
    torch.testing.assert_close(pseudo_label_counts(s, p, w).sum(-1), w.sum(-1))


def test_mixing_ratio_is_the_share_of_the_rarest() -> None:
    assert mixing_ratio(torch.tensor([[6.0, 3.0, 1.0], [5.0, 0.0, 0.0]])).tolist() == pytest.approx(
        [0.1, 0]
    )
    assert mixing_ratio(torch.zeros(3)).item() == 0
    assert mixing_ratio(torch.rand(50, 4)).max() <= 0.25


def test_mix_is_a_distribution_between_both() -> None:
    local, common = scores(3, 4).softmax(-1), scores(4).softmax(-1)
    mixed = mix(local, common, torch.tensor([0.0, 0.25, 1.0]).double())
    torch.testing.assert_close(mixed.sum(-1), torch.ones(3).double())
    torch.testing.assert_close(mixed[0], local[0])
    torch.testing.assert_close(mixed[1], 0.25 * common + 0.75 * local[1])
    torch.testing.assert_close(mixed[2], common)
    torch.testing.assert_close(mix(local, common, 0.25)[1], mixed[1])
