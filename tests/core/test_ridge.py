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
    p = ridge.predict(ridge.fit(x, y, torch.ones(40, dtype=torch.float64), ridge.spread(x)), x[:1] + 1e4)
    torch.testing.assert_close(p, torch.full((1, 4), 0.25, dtype=torch.float64))
