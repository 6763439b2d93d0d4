"""Kernel ridge regression: against scikit-learn, and what weights, classes and distances mean."""

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

from protoevfl.core import ridge


def world(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(40, 5, generator=source, dtype=torch.float64)
    y = torch.nn.functional.one_hot(torch.arange(40) % 4, 4).double()
    return x, y, torch.randn(30, 5, generator=source, dtype=torch.float64)


def test_it_is_the_kernel_ridge_of_scikit_learn() -> None:
    x, y, query = world()
    weight = torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    spread = ridge.spread(x)
    other = KernelRidge(alpha=ridge.PENALTY, kernel="rbf", gamma=1 / float(spread))
    other.fit(x.numpy(), (y - 0.25).numpy(), sample_weight=ridge.equal_classes(y, weight).numpy())
    expected = torch.from_numpy(ridge.SCALE * other.predict(query.numpy())).softmax(1)
    got = ridge.predict(ridge.fit(x, y, weight, spread), query, chunk=7)
    torch.testing.assert_close(got, expected, atol=1e-8, rtol=1e-6)


def test_the_spread_is_the_median_of_all_pairs() -> None:
    x = world()[0]
    pairs = [float((a - b).square().sum()) for i, a in enumerate(x) for b in x[:i]]
    assert float(ridge.spread(x)) == pytest.approx(np.percentile(pairs, 50, method="lower"))
    assert float(ridge.spread(x[:1])) == 1.0
    assert float(ridge.spread(torch.zeros(4, 2))) > 0


def test_classes_weigh_equally_however_many_rows_they_have() -> None:
    y = torch.tensor([[1.0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 1]])
    weight = ridge.equal_classes(y, torch.tensor([1.0, 1.0, 2.0, 1.0]))
    torch.testing.assert_close(weight @ y, torch.tensor([2.5, 0.0, 2.5]))
    torch.testing.assert_close(weight[2], 2 * weight[0])


def test_a_row_without_weight_does_not_matter_and_a_class_without_rows_gets_nothing() -> None:
    x, y, query = world()
    weight = (torch.arange(40) % 4 != 3).double()
    p = ridge.predict(ridge.fit(x, y, weight, ridge.spread(x)), query)
    assert (p[:, 3] == 0).all()
    torch.testing.assert_close(p.sum(1), torch.ones(30, dtype=torch.float64))
    kept = weight > 0
    alone = ridge.predict(ridge.fit(x[kept], y[kept], weight[kept], ridge.spread(x)), query)
    torch.testing.assert_close(p, alone)


def test_far_from_all_rows_every_class_there_is_equally_likely() -> None:
    x, y, _ = world()
    p = ridge.predict(
        ridge.fit(x, y, torch.ones(40, dtype=torch.float64), ridge.spread(x)), x[:1] + 1e4
    )
    torch.testing.assert_close(p, torch.full((1, 4), 0.25, dtype=torch.float64))


def test_left_out_is_what_the_regression_on_the_others_says() -> None:
    x, y, _ = world()
    spread = ridge.spread(x)
    weight = ridge.equal_classes(y, torch.ones(40, dtype=torch.float64))
    got = ridge._left_out(x, y, spread)
    for i in (0, 7, 39):
        keep = torch.arange(40) != i
        other = KernelRidge(alpha=ridge.PENALTY, kernel="rbf", gamma=1 / float(spread))
        other.fit(x[keep].numpy(), (y[keep] - 0.25).numpy(), sample_weight=weight[keep].numpy())
        torch.testing.assert_close(
            got[i], torch.from_numpy(other.predict(x[i : i + 1].numpy())[0]), atol=1e-8, rtol=1e-6
        )


def test_clear_classes_allow_sureness_and_labels_at_random_none() -> None:
    source = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    y = torch.nn.functional.one_hot(labels, 3).double()
    clear = 5 * y + torch.randn(60, 3, generator=source, dtype=torch.float64)
    noise = torch.randn(60, 3, generator=source, dtype=torch.float64)
    assert ridge.sureness(clear, y, ridge.spread(clear)) > 1
    assert ridge.sureness(noise, y, ridge.spread(noise)) == 0.25


def test_as_sure_meets_the_confidence_and_keeps_the_order() -> None:
    p = (
        3 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ).softmax(1)
    p = torch.cat([p, torch.zeros(50, 1, dtype=torch.float64)], 1)
    for wanted in (0.4, 0.7, 0.95):
        q = ridge.as_sure(p, torch.tensor(wanted))
        assert float(q.amax(1).mean()) == pytest.approx(wanted, abs=1e-3)
        torch.testing.assert_close(q.sum(1), torch.ones(50, dtype=torch.float64))
        assert torch.equal(q.argsort(1), p.argsort(1))
        assert (q[:, 4] == 0).all()
