"""Plans and costs against slow loops, invariants, gradients, extreme values."""

import math

import pytest
import torch
from torch import Tensor

from protoevfl.core.transport import (
    _backward_cost,
    _backward_plan,
    _forward_cost,
    cosine,
    cost,
    dual_cost,
    forward_plan,
    select_cosine,
    select_entropic,
    select_soft,
    similarity,
    unit,
)


def example(*batch: int, rows: int = 7, classes: int = 4, width: int = 5) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(3)
    f = torch.randn(*batch, rows, width, generator=g, dtype=torch.float64)
    mu = torch.randn(*batch, classes, width, generator=g, dtype=torch.float64)
    prior = torch.rand(*batch, classes, generator=g, dtype=torch.float64).add(0.1)
    weights = torch.rand(*batch, rows, generator=g, dtype=torch.float64)
    return f, mu, prior / prior.sum(-1, keepdim=True), weights


def slow_costs(
    f: Tensor, mu: Tensor, p: Tensor, temperature: float | None, w: Tensor
) -> tuple[float, float]:
    """Both expected costs by the definitions, one number at a time."""
    fs, ms, ps, ws = f.tolist(), mu.tolist(), p.tolist(), w.tolist()

    def dot(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b))

    def cos(a: list[float], b: list[float]) -> float:
        return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))

    def kernel(a: list[float], b: list[float]) -> float:
        return math.exp(dot(a, b) if temperature is None else cos(a, b) / temperature)

    there = 0.0
    for wn, fn in zip(ws, fs):
        row = [pz * kernel(fn, mz) for pz, mz in zip(ps, ms)]
        there += wn * sum(r / sum(row) * (1 - cos(fn, mz)) for r, mz in zip(row, ms)) / sum(ws)
    back = 0.0
    for pz, mz in zip(ps, ms):
        column = [wn * kernel(fn, mz) for wn, fn in zip(ws, fs)]
        back += pz * sum(c / sum(column) * (1 - cos(fn, mz)) for c, fn in zip(column, fs))
    return there, back


@pytest.mark.parametrize("temperature", [None, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_costs_equal_the_slow_loops(temperature: float | None, weighted: bool) -> None:
    f, mu, prior, w = example()
    given = w if weighted else None
    there, back = slow_costs(f, mu, prior, temperature, w if weighted else torch.ones_like(w))
    scores, costs = similarity(f, mu, temperature), cost(f, mu)
    assert _forward_cost(scores, costs, prior, given).item() == pytest.approx(there, rel=1e-10)
    assert _backward_cost(scores, costs, prior, given).item() == pytest.approx(back, rel=1e-10)
    assert dual_cost(f, mu, prior, temperature, given).item() == pytest.approx(
        there + back, rel=1e-10
    )
    single = dual_cost(f, mu, prior, temperature, given, direction="forward")
    assert single.item() == pytest.approx(there, rel=1e-10)


def test_plans_sum_to_one() -> None:
    f, mu, prior, w = example(2, 3)
    s = similarity(f, mu, 0.1)
    torch.testing.assert_close(forward_plan(s, prior).exp().sum(-1), torch.ones(2, 3, 7).double())
    for weights in (None, w):
        torch.testing.assert_close(
            _backward_plan(s, weights).exp().sum(-2), torch.ones(2, 3, 4).double()
        )


def test_prior_cancels_in_the_backward_plan() -> None:
    f, mu, prior, _ = example()
    s = similarity(f, mu)
    torch.testing.assert_close(_backward_plan(s + prior.log()), _backward_plan(s))


def test_permuting_classes_permutes_plans_and_keeps_the_cost() -> None:
    f, mu, prior, w = example()
    order = torch.tensor([2, 0, 3, 1])
    s, moved = similarity(f, mu, 0.3), similarity(f, mu[order], 0.3)
    torch.testing.assert_close(forward_plan(moved, prior[order]), forward_plan(s, prior)[:, order])
    torch.testing.assert_close(_backward_plan(moved, w), _backward_plan(s, w)[:, order])
    torch.testing.assert_close(
        dual_cost(f, mu[order], prior[order], 0.3, w), dual_cost(f, mu, prior, 0.3, w)
    )


def test_batched_equals_looped() -> None:
    f, mu, prior, w = example(2, 3)
    batched = dual_cost(f, mu, prior, 0.2, w)
    assert batched.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            one = dual_cost(f[i, j], mu[i, j], prior[i, j], 0.2, w[i, j])
            torch.testing.assert_close(batched[i, j], one)


def test_weights_count_rows() -> None:
    """A weight of 2 is the row twice, a weight of 0 is the row gone."""
    f, mu, prior, _ = example(rows=3)
    weights = torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(
        dual_cost(f, mu, prior, 0.2, weights), dual_cost(f[[0, 1, 1]], mu, prior, 0.2)
    )


@pytest.mark.parametrize("temperature", [None, 0.5])
def test_gradients(temperature: float | None) -> None:
    f, mu, prior, w = example(2, rows=3, classes=3, width=2)
    inputs = [t.requires_grad_() for t in (f, mu, prior, w)]
    assert torch.autograd.gradcheck(lambda a, b, p, v: dual_cost(a, b, p, temperature, v), inputs)


@pytest.mark.parametrize("temperature", [None, 0.05])
@pytest.mark.parametrize("size", [1e-30, 1e-8, 1e8, 1e17])
def test_extreme_norms_stay_finite(temperature: float | None, size: float) -> None:
    f, mu, prior, w = (t.float() for t in example())
    f = (f * size).requires_grad_()
    loss = dual_cost(f, mu * size, prior, temperature, w)
    loss.backward()
    assert f.grad is not None
    assert torch.isfinite(loss)
    assert torch.isfinite(f.grad).all()


def test_cosine_does_not_depend_on_the_norm() -> None:
    f, mu, *_ = (t.float() for t in example())
    for size in (1e-10, 1e30):
        torch.testing.assert_close(cosine(f * size, mu), cosine(f, mu))


def test_zero_vector_has_cosine_zero_and_a_bounded_gradient() -> None:
    f = torch.zeros(1, 3, requires_grad=True)
    c = cosine(f, torch.ones(2, 3))
    c.sum().backward()
    assert c.tolist() == [[0.0, 0.0]]
    assert f.grad is not None
    assert f.grad.abs().max() < 10
    assert unit(torch.zeros(2)).tolist() == [0.0, 0.0]


def test_one_class_one_row() -> None:
    f, mu, _, _ = example(rows=1, classes=1)
    one = torch.ones(1, dtype=torch.float64)
    torch.testing.assert_close(dual_cost(f, mu, one), 2 * cost(f, mu).squeeze())


def test_class_of_prior_zero_attracts_nothing() -> None:
    f, mu, _, w = example()
    prior = torch.tensor([0.5, 0.0, 0.25, 0.25], dtype=torch.float64)
    f.requires_grad_()
    assert forward_plan(similarity(f, mu), prior).exp()[:, 1].abs().max() == 0
    rest = [0, 2, 3]
    loss = dual_cost(f, mu, prior, 0.2, w)
    torch.testing.assert_close(loss, dual_cost(f, mu[rest], prior[rest], 0.2, w))
    assert torch.isfinite(torch.autograd.grad(loss, f)[0]).all()


def test_no_row_selected_costs_nothing() -> None:
    f, mu, prior, w = example(2)
    w[0] = 0
    f.requires_grad_()
    loss = dual_cost(f, mu, prior, 0.2, w)
    gradient = torch.autograd.grad(loss.sum(), f)[0]
    assert loss[0] == 0
    assert loss[1] > 0
    assert gradient[0].abs().max() == 0
    assert torch.isfinite(gradient).all()


def test_selections_are_plans_over_classes() -> None:
    f, mu, prior, _ = example(2)
    f.requires_grad_()
    for plan in (select_soft(f, mu, prior, 0.1), select_cosine(f, mu)):
        assert plan.shape == (2, 7, 4)
        assert not plan.requires_grad
        torch.testing.assert_close(plan.sum(-1), torch.ones(2, 7).double())
    hard = select_cosine(f, mu)
    assert hard.unique().tolist() == [0, 1]
    assert (hard.argmax(-1) == cosine(f, mu).argmax(-1)).all()


def test_entropic_selection_meets_its_marginals_and_equals_sinkhorn() -> None:
    pytest.importorskip("ot")
    f, mu, prior, _ = example(2)
    plan = select_entropic(f, mu, prior, regularisation=0.2, iterations=5000)
    torch.testing.assert_close(plan.sum(-1), torch.ones(2, 7).double())
    torch.testing.assert_close(plan.mean(-2), prior, atol=1e-6, rtol=0)
    kernel = (-cost(f, mu) / 0.2).exp()
    for _ in range(5000):  # Sinkhorn by the book: scale columns to N p, then rows to 1
        kernel = kernel * (7 * prior / kernel.sum(-2)).unsqueeze(-2)
        kernel = kernel / kernel.sum(-1, keepdim=True)
    torch.testing.assert_close(plan, kernel, atol=1e-6, rtol=0)


def test_entropic_selection_shares_one_prior_over_the_batch() -> None:
    pytest.importorskip("ot")
    f, mu, prior, _ = example(2)
    shared = select_entropic(f, mu, prior[0])
    torch.testing.assert_close(shared[1], select_entropic(f[1], mu[1], prior[0]))
