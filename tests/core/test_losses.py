"""Losses against slow loops, invariants, gradients, extreme values."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core.losses import info_nce_queue, nt_xent, simsiam, soft_cross_entropy


def pair(groups: int = 2, rows: int = 4, width: int = 3) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(7)
    z = torch.randn(2, groups, rows, width, generator=g, dtype=torch.float64)
    return z[0], z[1]


def cos(a: Tensor, b: Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()))


def slow_nt_xent(z1: Tensor, z2: Tensor, t: float) -> float:
    views, rows, total = [*z1, *z2], len(z1), 0.0
    for i, a in enumerate(views):
        partner = views[(i + rows) % (2 * rows)]
        others = sum(math.exp(cos(a, b) / t) for j, b in enumerate(views) if j != i)
        total += math.log(others) - cos(a, partner) / t
    return total / (2 * rows)


def slow_info_nce(q: Tensor, k: Tensor, queue: Tensor, t: float) -> float:
    total = 0.0
    for a, b in zip(q, k):
        positive = math.exp(cos(a, b) / t)
        total -= math.log(positive / (positive + sum(math.exp(cos(a, c) / t) for c in queue)))
    return total / len(q)


def test_nt_xent_equals_the_slow_loop_per_group() -> None:
    z1, z2 = pair()
    loss = nt_xent(z1, z2, 0.2)
    assert loss.tolist() == pytest.approx([slow_nt_xent(a, b, 0.2) for a, b in zip(z1, z2)])


@pytest.mark.parametrize("t", [0.013, 0.05, 0.2, 1.0])
def test_nt_xent_and_its_gradient_are_those_of_the_plain_formula(t: float) -> None:
    """Cross-entropy of the other view among all others, by torch's own functions; also beyond the
    temperature from which the gradient is taken by hand."""
    for temperature in (t, t / 10):
        z1, z2 = (x.requires_grad_() for x in pair(groups=3, rows=6))
        z = F.normalize(torch.cat([z1, z2], 1), dim=-1)
        logits = (z @ z.mT / temperature).masked_fill(torch.eye(12, dtype=torch.bool), -torch.inf)
        plain = F.cross_entropy(
            logits.mT, torch.arange(12).roll(6).expand(3, -1), reduction="none"
        ).mean(1)
        ours = nt_xent(z1, z2, temperature)
        torch.testing.assert_close(ours, plain)
        weights = torch.tensor([1.0, -2.0, 0.5]).double()
        wanted = torch.autograd.grad((weights * plain).sum(), [z1, z2])
        found = torch.autograd.grad((weights * ours).sum(), [z1, z2])
        torch.testing.assert_close(found, wanted)


def test_nt_xent_is_symmetric_and_blind_to_order_and_norm() -> None:
    z1, z2 = pair()
    loss, order = nt_xent(z1, z2, 0.5), torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(nt_xent(z2, z1, 0.5), loss)
    torch.testing.assert_close(nt_xent(z1[:, order], z2[:, order], 0.5), loss)
    torch.testing.assert_close(nt_xent(7 * z1, z2, 0.5), loss)
    assert (nt_xent(z1, z1, 0.5) < loss).all()


def test_simsiam_equals_the_slow_loop_and_stops_the_gradient() -> None:
    p, z = pair()
    expected = [-sum(cos(a, b) for a, b in zip(x, y)) / 4 for x, y in zip(p, z)]
    assert simsiam(p, z).tolist() == pytest.approx(expected)
    z.requires_grad_()
    p.requires_grad_()
    assert torch.autograd.grad(simsiam(p, z).sum(), [p, z], allow_unused=True)[1] is None
    assert torch.autograd.gradcheck(lambda x: simsiam(x, z.detach()), [p])


def test_info_nce_equals_the_slow_loop_and_stops_the_gradient() -> None:
    q, k = pair()
    queue = F.normalize(
        torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(8)).double(), dim=-1
    )
    loss = info_nce_queue(q, k, queue, 0.2)
    assert loss.tolist() == pytest.approx(
        [slow_info_nce(a, b, c, 0.2) for a, b, c in zip(q, k, queue)]
    )
    inputs = [t.requires_grad_() for t in (q, k, queue)]
    _, to_key, to_queue = torch.autograd.grad(
        info_nce_queue(q, k, queue, 0.2).sum(), inputs, allow_unused=True
    )
    assert to_key is None
    assert to_queue is None


def test_soft_cross_entropy_equals_torch_and_weights_count_rows() -> None:
    logits, raw = pair()
    targets = raw.softmax(-1)
    for g in range(2):
        torch.testing.assert_close(
            soft_cross_entropy(logits, targets)[g], F.cross_entropy(logits[g], targets[g])
        )
    w = torch.tensor([[1.0, 2.0, 0.0, 0.0]]).double().expand(2, 4)
    torch.testing.assert_close(
        soft_cross_entropy(logits, targets, w),
        soft_cross_entropy(logits[:, [0, 1, 1]], targets[:, [0, 1, 1]]),
    )
    assert soft_cross_entropy(logits, targets, 0 * w).tolist() == [0, 0]


def test_gradients() -> None:
    a, b = (t.requires_grad_() for t in pair(rows=3))
    assert torch.autograd.gradcheck(lambda x, y: nt_xent(x, y, 0.5), [a, b])
    queue = F.normalize(torch.ones(2, 1, 3).double(), dim=-1)
    assert torch.autograd.gradcheck(lambda x: info_nce_queue(x, b.detach(), queue, 0.5), [a])
    assert torch.autograd.gradcheck(lambda x, y: soft_cross_entropy(x, y.softmax(-1)), [a, b])


@pytest.mark.parametrize("size", [0.0, 1e-20, 1e25])
def test_extreme_norms_and_a_single_row(size: float) -> None:
    a, b = (t.float() * size for t in pair())
    a.requires_grad_()
    for loss in (
        nt_xent(a, b, 0.05),
        simsiam(a, b),
        info_nce_queue(a, b, torch.ones(2, 5, 3), 0.05),
    ):
        (gradient,) = torch.autograd.grad(loss.sum(), a)
        assert torch.isfinite(loss).all()
        assert torch.isfinite(gradient).all()
    one = nt_xent(a[:, :1], b[:, :1], 0.1)
    torch.testing.assert_close(one, torch.zeros(2))
