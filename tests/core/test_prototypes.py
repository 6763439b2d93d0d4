"""Class means and prototype updates: against loops, empty classes, batches, gradients."""

import pytest
import torch
from torch import Tensor

from protoevfl.core.prototypes import Rule, class_means, update


def rows(*batch: int, n: int = 12, d: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    f = torch.randn(*batch, n, d, generator=g, dtype=torch.float64)
    labels = torch.randint(0, 3, (*batch, n), generator=g)  # classes 3 and up stay empty
    return f, labels, torch.rand(*batch, n, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("weighted", [False, True])
def test_means_equal_a_loop(weighted: bool) -> None:
    f, y, w = rows()
    means, counts = class_means(f, y, 5, w if weighted else None)
    for z in range(5):
        members = [
            (w[n] if weighted else torch.tensor(1.0).double(), f[n]) for n in range(12) if y[n] == z
        ]
        if not members:
            assert counts[z] == 0
            assert means[z].abs().max() == 0
            continue
        total = sum((v for v, _ in members), torch.tensor(0.0).double())
        torch.testing.assert_close(counts[z], total)
        torch.testing.assert_close(
            means[z], sum((v * x for v, x in members), torch.zeros(3).double()) / total
        )


def test_unlabelled_rows_belong_to_no_class() -> None:
    f, y, _ = rows()
    kept = torch.arange(12) < 8
    means, counts = class_means(f, torch.where(kept, y, -1), 4)
    expected, fewer = class_means(f[:8], y[:8], 4)
    torch.testing.assert_close(means, expected)
    torch.testing.assert_close(counts, fewer)


def test_batched_equals_looped_and_permutes_with_the_classes() -> None:
    f, y, w = rows(2, 2)
    means, counts = class_means(f, y, 4, w)
    one, count = class_means(f[1, 0], y[1, 0], 4, w[1, 0])
    torch.testing.assert_close(means[1, 0], one)
    torch.testing.assert_close(counts[1, 0], count)
    new_name = torch.tensor([2, 0, 3, 1])
    moved, _ = class_means(f, new_name[y], 4, w)
    torch.testing.assert_close(moved[..., new_name, :], means)


@pytest.mark.parametrize("rule", ["paper", "ema"])
def test_update_follows_its_rule_and_keeps_empty_classes(rule: Rule) -> None:
    mu, means = torch.ones(3, 2), torch.full((3, 2), 5.0)
    new = update(mu, means, torch.tensor([4.0, 0.0, 1.0]), rho=0.1, rule=rule)
    moved = 1 + 0.5 if rule == "paper" else 0.9 + 0.5
    assert new.tolist() == [pytest.approx([moved] * 2), [1.0, 1.0], pytest.approx([moved] * 2)]


def test_ema_stays_bounded_and_paper_grows() -> None:
    mu = torch.zeros(1, 2)
    grown = mu
    for _ in range(200):
        mu = update(mu, torch.ones(1, 2), torch.ones(1), 0.1, "ema")
        grown = update(grown, torch.ones(1, 2), torch.ones(1), 0.1, "paper")
    torch.testing.assert_close(mu, torch.ones(1, 2))
    torch.testing.assert_close(grown, torch.full((1, 2), 20.0), rtol=1e-4, atol=0)


def test_huge_rows_one_row_one_class() -> None:
    f = torch.full((40, 2), 3e38)
    means, _ = class_means(f, torch.zeros(40, dtype=torch.int64), 1)
    torch.testing.assert_close(means, f[:1])
    means, counts = class_means(f[:1], torch.tensor([1]), 2)
    assert counts.tolist() == [0, 1]
    assert torch.isfinite(means).all()


def test_gradient() -> None:
    f, y, w = rows(2, n=5, d=2)
    mu = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)

    def both(x: Tensor, v: Tensor, m: Tensor) -> Tensor:
        return update(m, *class_means(x, y, 4, v), 0.1, "ema")

    assert torch.autograd.gradcheck(both, [f.requires_grad_(), w.requires_grad_(), mu])
