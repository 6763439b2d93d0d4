"""Products and kernels against the same of the whole features."""

import numpy as np

from protoevfl.methods import partner_kernel


def test_products_of_many_columns_are_those_of_the_whole_in_double_precision() -> None:
    rng = np.random.default_rng(0)
    width = 2 * partner_kernel.COLUMNS + 5
    sent = rng.normal(size=(2, 4, width)).astype(np.float32)
    asked = rng.normal(size=(2, 3, width)).astype(np.float32)
    products = partner_kernel.Anchors(sent).products(asked)
    exact = asked.astype(np.float64) @ np.swapaxes(sent.astype(np.float64), 1, 2)
    np.testing.assert_allclose(products.inner, exact, rtol=1e-9, atol=1e-9)
    squares = (asked.astype(np.float64) ** 2).sum(2)
    np.testing.assert_allclose(products.squares, squares, rtol=1e-9)


def test_a_kernel_is_that_of_the_features_times_their_factors() -> None:
    rng = np.random.default_rng(1)
    sent, asked = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 4, 3))
    factors = np.array([1.0, 0.1])
    anchors = partner_kernel.Anchors(sent)
    kernel = partner_kernel.Kernel.of(anchors.products(sent), factors, mix=0.5)
    weighed = [rows * np.sqrt(factors)[:, None, None] for rows in (sent, asked)]
    known, new = (np.concatenate(list(rows), 1) for rows in weighed)
    apart = ((new[:, None] - known) ** 2).sum(2)
    mutual = ((known[:, None] - known) ** 2).sum(2)
    length, distance = (known**2).sum(1).mean(), np.median(mutual[np.triu_indices(6, 1)])
    expected = 0.5 * new @ known.T / length + 0.5 * np.exp(-apart / distance)
    np.testing.assert_allclose(kernel(anchors.products(asked)), expected, rtol=1e-6)
