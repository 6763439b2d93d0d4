"""One loop trains members as it would train each alone: order of rows, rate, losses; with and
without a CUDA graph."""

import math

import pytest
import torch
from torch import Tensor, nn

from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.fit import cosine, fit
from tests.tiny import keys

ROWS, D = 10, 4


class Problem:
    """Least squares of G members on their own rows; remembers which rows each step saw."""

    def __init__(self, members: list[int], device: str = "cpu") -> None:
        source = torch.Generator().manual_seed(0)
        everyone = torch.randn(4, ROWS, D + 1, generator=source)[members].to(device)
        self.keys = keys(4)[members].to(device)
        self.x, self.y = everyone[..., :D], everyone[..., D]
        self.weight = nn.Parameter(torch.zeros(len(members), D, device=device))
        self.seen: list[Tensor] = []
        self.steps: list[int] = []

    def loss(self, index: Tensor, step: Tensor | int) -> Tensor:
        if not self.x.is_cuda:
            self.seen.append(index.clone())
            self.steps.append(int(step))
        member = torch.arange(len(self.keys), device=index.device)[:, None]
        noise = rnd.normal(self.keys, "noise", step, (index.shape[1],))
        guess = (self.x[member, index] * self.weight[:, None]).sum(-1)  # (G, B)
        return (guess + 0.1 * noise - self.y[member, index]).square().mean(1)

    def fit(self, **how: object) -> Tensor:
        settings = {"epochs": 3, "batch": 4, "lr": 0.05, "weight_decay": 0.01} | how
        return fit(self.loss, [self.weight], self.keys, ROWS, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("drop_last", [True, False])
def test_members_learn_the_same_alone_and_stacked(optimizer: str, drop_last: bool) -> None:
    together = Problem([0, 1, 2, 3])
    history = together.fit(optimizer=optimizer, drop_last=drop_last)
    for g in range(4):
        alone = Problem([g])
        torch.testing.assert_close(
            alone.fit(optimizer=optimizer, drop_last=drop_last)[:, 0], history[:, g]
        )
        torch.testing.assert_close(alone.weight[0], together.weight[g])
    assert history.shape == (3, 4)


def test_the_loss_falls() -> None:
    problem = Problem([0, 1])
    history = problem.fit(epochs=30)
    assert (history[-1] < history[0]).all()


@pytest.mark.parametrize(
    ("batch", "drop_last", "steps"), [(4, True, 2), (4, False, 3), (5, False, 2), (99, True, 1)]
)
def test_every_epoch_visits_rows_once_and_a_short_last_batch_wraps(
    batch: int, drop_last: bool, steps: int
) -> None:
    problem = Problem([0, 1])
    problem.fit(epochs=2, batch=batch, drop_last=drop_last)
    assert len(problem.seen) == 2 * steps
    size = min(batch, ROWS)
    for epoch in range(2):
        order = torch.cat(problem.seen[epoch * steps : (epoch + 1) * steps], 1)  # (G, steps*size)
        assert order.shape == (2, steps * size)
        for member in order:
            assert len(set(member[:ROWS].tolist())) == min(ROWS, steps * size)
            assert torch.equal(member[ROWS:], member[: max(0, steps * size - ROWS)])
    first, second = torch.cat(problem.seen[:steps], 1), torch.cat(problem.seen[steps:], 1)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


def test_steps_are_counted_through_all_epochs() -> None:
    problem = Problem([0])
    problem.fit(epochs=3, batch=4)
    assert problem.steps == list(range(6))


def test_the_rate_falls_as_half_a_cosine() -> None:
    """With a gradient of one, plain steps of SGD without momentum add up the rates; here momentum
    is 0.9."""
    for decay in (True, False):
        weight, speed, place = nn.Parameter(torch.zeros(1, 1)), 0.0, 0.0
        fit(
            lambda index, step, w=weight: w.sum(1),
            [weight],
            keys(1),
            8,
            epochs=2,
            batch=2,
            lr=0.1,
            optimizer="sgd",
            decay=decay,
        )
        for step in range(8):
            speed = 0.9 * speed + 1
            place -= (0.1 * cosine(step, 8) if decay else 0.1) * speed
        assert weight.item() == pytest.approx(place, rel=1e-5)


def test_cosine_goes_from_one_to_zero() -> None:
    assert cosine(0, 10) == 1
    assert cosine(5, 10) == pytest.approx(0.5)
    assert cosine(10, 10) == pytest.approx(0)
    assert cosine(0, 0) == 1
    assert all(cosine(n, 10) > cosine(n + 1, 10) for n in range(10))


def test_history_is_the_mean_loss_of_each_epoch() -> None:
    seen: list[Tensor] = []
    problem = Problem([0, 1])

    def loss(index: Tensor, step: int) -> Tensor:
        value = problem.loss(index, step)
        seen.append(value.detach())
        return value

    history = fit(loss, [problem.weight], problem.keys, ROWS, epochs=2, batch=5, lr=0.1)
    torch.testing.assert_close(history, torch.stack(seen).view(2, 2, 2).mean(1))


def test_after_runs_in_each_step_and_progress_after_each_epoch() -> None:
    calls, told = [], []
    Problem([0]).fit(
        after=lambda: calls.append(1), progress=lambda *what: told.append(what), purpose="p"
    )
    assert len(calls) == 6
    assert told == [("p", 1, 3), ("p", 2, 3), ("p", 3, 3)]


def test_weight_decay_pulls_to_zero() -> None:
    weight = nn.Parameter(torch.ones(1, 1))
    fit(
        lambda index, step: 0 * weight.sum(1),
        [weight],
        keys(1),
        4,
        epochs=1,
        batch=1,
        lr=0.1,
        weight_decay=0.5,
        decay=False,
    )
    assert weight.item() == pytest.approx((1 - 0.1 * 0.5) ** 4)


def test_no_epochs_change_nothing() -> None:
    problem = Problem([0])
    assert problem.fit(epochs=0).shape == (0, 1)
    assert not problem.weight.any()


def test_no_gradient_is_left_behind() -> None:
    problem = Problem([0])
    problem.fit()
    assert problem.weight.grad is None


def test_a_member_whose_loss_is_not_a_number_harms_itself_only() -> None:
    good, bad = Problem([0, 1]), Problem([0, 1])
    bad.y = bad.y.clone()
    bad.y[0] = math.nan
    good.fit()
    bad.fit()
    assert bad.weight[0].isnan().all()
    assert torch.equal(bad.weight[1], good.weight[1])


def test_an_unknown_optimiser_and_no_rows_are_refused() -> None:
    with pytest.raises(UserError, match="unknown optimizer 'adam'; there are adamw, sgd"):
        Problem([0]).fit(optimizer="adam")
    with pytest.raises(UserError, match="no rows"):
        fit(lambda index, step: index.sum(1), [], keys(1), 0, epochs=1, batch=4, lr=1.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_captured_graph_gives_the_numbers_of_plain_steps_and_of_the_cpu(optimizer: str) -> None:
    runs = []
    for device, graph in (("cuda", True), ("cuda", False), ("cpu", False)):
        problem = Problem([0, 1, 2], device)
        history = problem.fit(epochs=6, batch=4, drop_last=False, optimizer=optimizer, graph=graph)
        runs.append((history.cpu(), problem.weight.detach().cpu()))
    for history, weight in runs[1:]:
        torch.testing.assert_close(history, runs[0][0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(weight, runs[0][1], atol=1e-5, rtol=1e-4)
