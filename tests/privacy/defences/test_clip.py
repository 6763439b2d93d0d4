"""Clipping: no row longer than the bound, short rows untouched, nothing not finite gets through."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.privacy.defences.clip import clip


@given(st.integers(0, 2**31), st.floats(1e-3, 1e3), st.sampled_from([1e-20, 1.0, 1e20, 3e38]))
def test_bounded_and_otherwise_untouched(seed: int, bound: float, size: float) -> None:
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(seed)).clamp(-1, 1) * size
    y = clip(x, bound)
    assert y.double().norm(dim=1).max() <= bound * 1.0001
    short = x.double().norm(dim=1) <= bound
    assert torch.equal(y[short], x[short])


def test_not_finite_rows_become_zero() -> None:
    x = torch.tensor([[torch.nan, 1.0], [torch.inf, 0.0], [3.0, 4.0]])
    assert clip(x, 10.0).tolist() == [[0, 0], [0, 0], [3, 4]]
