"""Imbalance measures: hand-computed values, the paper's Credit row, extreme values."""

import math

import pytest
import torch

from protoevfl.core.imbalance import gamma, mid, wcs


@pytest.mark.parametrize(
    ("ratio", "printed"), [(4.7, 0.331), (8.2, 0.502), (5.2, 0.364), (3.5, 0.233)]
)
def test_mid_reproduces_the_papers_credit_row(ratio: float, printed: float) -> None:
    assert gamma([ratio, 1.0]) == pytest.approx(ratio)
    assert mid([ratio, 1.0]) == pytest.approx(printed, abs=0.006)


def test_mid_bounds_and_scale() -> None:
    assert mid([7, 7, 7]) == pytest.approx(0)
    assert mid([7, 0, 0]) == pytest.approx(1)
    assert mid([3, 2, 1]) == pytest.approx(mid([300, 200, 100]))
    assert mid([3, 2, 1]) == pytest.approx(mid([1, 3, 2]))


def test_degenerate_counts() -> None:
    assert gamma([5, 0]) == math.inf
    assert gamma([0, 0]) == 1
    assert gamma(torch.tensor([4])) == 1
    assert mid([4]) == 0
    assert mid([0, 0]) == 0
    assert wcs([[0, 0], [1, 1]]).tolist() == pytest.approx([0, 1])


def test_wcs_equals_a_loop() -> None:
    counts = [[9, 1, 0], [2, 2, 2], [0, 1, 4]]
    total = [sum(c) for c in zip(*counts)]

    def cos(a: list[int], b: list[int]) -> float:
        return sum(x * y for x, y in zip(a, b)) / math.sqrt(
            sum(x * x for x in a) * sum(y * y for y in b)
        )

    cosines = [cos(row, total) for row in counts]
    assert wcs(counts).tolist() == pytest.approx(cosines)


def test_parties_with_the_same_shares_have_wcs_one() -> None:
    assert wcs([[3, 6], [1, 2]]).tolist() == pytest.approx([1, 1])
    assert wcs([[5, 0], [0, 5]]).tolist() == pytest.approx([math.sqrt(0.5)] * 2)
