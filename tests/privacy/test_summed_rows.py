"""What is summed: whole numbers in range, rows of bounded length, and means that come back."""

import pytest
import torch

from protoevfl.privacy.encrypted_sums import LARGEST, plain_sums
from protoevfl.privacy.summed_rows import COUNT, FOLDS, Scale, folds_at

ROWS = 400


def features() -> torch.Tensor:
    """Correlated, one of them rare and one with outliers."""
    source = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 6, generator=source) @ torch.randn(6, 6, generator=source)
    x[:, 4] = (x[:, 4] > 4).float()
    x[:3, 5] *= 100
    return x


def test_noisy_rows_are_no_longer_than_one_and_half_of_them_as_long() -> None:
    x = features()
    levels = Scale.of(x, sigma=1.0).levels(x)
    lengths = levels[:, :-1].double().norm(dim=1) / LARGEST
    assert float(lengths.max()) <= 1
    assert abs(float((lengths > 0.99).double().mean()) - 0.5) < 0.05
    assert bool((levels[:, -1] == COUNT).all()), "the last column counts rows"


def test_exact_rows_lie_within_their_range_and_are_counted_by_one() -> None:
    x = features()
    levels = Scale.of(x, sigma=0.0).levels(x)
    assert int(levels.abs().max()) == LARGEST, "an outlier is clipped"
    assert bool((levels[:, -1] == 1).all())


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_means_come_back_from_sums(sigma: float) -> None:
    """Of rows that no clip touches: those near the middle."""
    x = features()
    scale = Scale.of(x, sigma)
    near = x.mean(0) + 0.1 * (x[10:60] - x.mean(0))
    labels = torch.arange(50) % 2
    sums = plain_sums(scale.levels(near), labels, torch.zeros(50, dtype=torch.int64), 1, 2)
    means, counts = scale.means(sums)
    z = scale.standardised(near)
    truth = torch.stack([z[labels == k].mean(0) for k in (0, 1)])
    assert counts.flatten().tolist() == [25, 25]
    torch.testing.assert_close(means[0], truth, atol=0.01, rtol=0)


def test_exact_sums_are_made_by_fold_and_noisy_ones_at_once() -> None:
    assert (folds_at(0.0), folds_at(2.0)) == (FOLDS, 1)


def test_a_row_s_own_part_is_what_it_adds_to_the_sums() -> None:
    """Of clipped rows, too: the mean of all parts is the mean that is read off the sums."""
    x = features()
    scale = Scale.of(x, sigma=1.0)
    one_class = torch.ones(ROWS, dtype=torch.int64)
    sums = plain_sums(scale.levels(x), one_class, torch.zeros_like(one_class), 1, 2)
    means, counts = scale.means(sums)
    assert counts.flatten().tolist() == [1, ROWS], "no mean is divided by nothing"
    parts = scale.own_part(scale.standardised(x))
    torch.testing.assert_close(means[0, 1], parts.mean(0), atol=0.01, rtol=0)


def test_contrasts_are_believed_as_far_as_they_stand_out_of_the_noise() -> None:
    """Long ones nearly whole, along directions in which rows differ; of noise alone hardly anything."""
    x = features()
    scale = Scale.of(x, sigma=1.0)
    assert scale.root is not None
    c = (
        torch.linalg.inv(scale.root)
        @ torch.randn(6, 1, generator=torch.Generator().manual_seed(1)).double()
    )
    kept = []
    for per_label in (1e-4, 0.3, 100.0):
        believed = scale.believed(c, torch.tensor([per_label]).double()) @ c
        kept.append(float(believed.norm() / c.norm()))
    assert kept[0] > 0.99
    assert kept[0] > kept[1] > kept[2]
    assert kept[2] < 0.1
