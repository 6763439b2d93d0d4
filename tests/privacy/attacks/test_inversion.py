"""Inversion beats the mean where embeddings tell something, and not where they are noise."""

import torch

from protoevfl.privacy.attacks.inversion import compare, invert, ssim


def rows_and_embeddings() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    factors = torch.randn(300, 6, generator=g)
    rows = torch.sigmoid(factors @ torch.randn(6, 2 * 8 * 8, generator=g)).view(300, 2, 8, 8)
    return rows, factors @ torch.randn(6, 20, generator=g), torch.arange(300) < 150


def test_decoder_beats_the_mean_row() -> None:
    rows, f, leaked = rows_and_embeddings()
    found = invert(f, rows, leaked, torch.arange(300) % 3, steps=300)
    best = min(found["decoder"].mse, found["ridge decoder"].mse)
    assert best < 0.5 * min(found["mean row"].mse, found["mean row of the class"].mse)
    assert (found["decoder"].ssim or 0) > (found["mean row"].ssim or 0)


def test_noise_cannot_be_inverted() -> None:
    rows, f, leaked = rows_and_embeddings()
    noise = torch.randn(f.shape, generator=torch.Generator().manual_seed(1))
    found = invert(noise, rows, leaked, steps=100)
    assert found["decoder"].mse > 0.9 * found["mean row"].mse


def test_scores_of_equal_and_unequal_images() -> None:
    x = torch.rand(3, 1, 10, 10, generator=torch.Generator().manual_seed(0))
    assert compare(x.flatten(1), x.flatten(1), x.shape[1:]).mse == 0.0
    assert ssim(x, 1 - x) < 0 < 0.999 < ssim(x, x)
    assert compare(torch.zeros(2, 5), torch.ones(2, 5), torch.Size([5])).ssim is None
