"""Random views: shape, repeatability, independence of stacking, what each knob does, column
corruption."""

import doctest

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import augment
from protoevfl.core.augment import (
    DEFAULT_VIEWS,
    ImageViews,
    augment_images,
    corrupt_columns,
    span_index,
)

STILL = ImageViews(scale=0, angle=0, shift=0, brightness=0, noise=0, erase=0)
KEYS = torch.tensor([11, 2**40 + 7, 5])


def images(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def only(**knobs: float) -> ImageViews:
    return ImageViews(**{**vars(STILL), **knobs})


def test_examples_run() -> None:
    assert doctest.testmod(augment).failed == 0


@pytest.mark.parametrize("views", [DEFAULT_VIEWS, ImageViews(blur=1, contrast=0.5, flip=True)])
@pytest.mark.parametrize("size", [(2, 14, 14), (1, 4, 4), (3, 32, 32), (1, 1, 1), (1, 4, 8)])
def test_any_size_repeats_and_does_not_depend_on_stacking(
    views: ImageViews, size: tuple[int, int, int]
) -> None:
    x = images(3, 6, *size)
    y = augment_images(x, KEYS, "view", 4, 1.0, views)
    assert y.shape == x.shape
    assert torch.isfinite(y).all()
    torch.testing.assert_close(
        augment_images(x, KEYS, "view", torch.tensor(4), 1.0, views), y, rtol=0, atol=0
    )
    for g in range(3):
        alone = augment_images(x[g : g + 1], KEYS[g : g + 1], "view", 4, 1.0, views)
        torch.testing.assert_close(alone[0], y[g])
    if size != (1, 1, 1):
        assert not torch.allclose(augment_images(x, KEYS, "view", 5, 1.0, views), y)
        assert not torch.allclose(augment_images(x, KEYS, "other", 4, 1.0, views), y)


def test_strength_zero_changes_nothing() -> None:
    x = images(3, 5, 2, 7, 7)
    torch.testing.assert_close(augment_images(x, KEYS, "view", 0, 0.0), x, atol=1e-5, rtol=0)
    torch.testing.assert_close(augment_images(x, KEYS, "view", 0, 1.0, STILL), x, atol=1e-5, rtol=0)


def test_rows_and_groups_get_different_views() -> None:
    x = images(1, 1, 1, 8, 8).expand(3, 4, 1, 8, 8)
    flat = augment_images(x, KEYS, "view", 0).flatten(0, 1).flatten(1)
    assert torch.cdist(flat, flat).add(torch.eye(12)).min() > 0.1


def test_flip_mirrors_about_half_of_the_images_and_nothing_else() -> None:
    x = images(3, 100, 1, 5, 5)
    y = augment_images(x, KEYS, "view", 0, 1.0, only(flip=True))
    kept = (y - x).abs().amax((2, 3, 4)) < 1e-5
    mirrored = (y - x.flip(-1)).abs().amax((2, 3, 4)) < 1e-5
    assert (kept ^ mirrored).all()
    assert 0.4 < float(mirrored.float().mean()) < 0.6


@pytest.mark.parametrize(("height", "width"), [(32, 32), (32, 64)])
def test_flip_and_rotation_together_keep_lengths(height: int, width: int) -> None:
    """A mirror and a turn of a centred round bump leave it as it was, on square and on wide
    images."""
    down, across = torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2
    bump = (-(down[:, None] ** 2 + across[None] ** 2) / 40).exp().expand(1, 20, 1, height, width)
    y = augment_images(bump, KEYS[:1], "view", 0, 1.0, only(flip=True, angle=0.7))
    assert (y - bump).abs().max() < 0.03


def test_shift_and_zoom_move_the_bump_within_their_range() -> None:
    at = torch.arange(40) - 19.5
    bump = (-(at[:, None] ** 2 + at[None] ** 2) / 10).exp().expand(3, 100, 1, 40, 40)
    y = augment_images(bump, KEYS, "view", 0, 1.0, only(shift=0.25))
    centre = (y * at).sum((-2, -1)) / y.sum((-2, -1))
    assert 4 < float(centre.abs().max()) < 5.1  # a quarter of half of 40 pixels
    mass = (
        augment_images(bump, KEYS, "view", 0, 1.0, only(scale=0.25)).sum((2, 3, 4))
        / bump[0, 0].sum()
    )
    assert 0.63 < float(mass.min()) < 0.7  # 1 / 1.25^2
    assert 1.65 < float(mass.max()) < 1.79  # 1 / 0.75^2


def test_brightness_contrast_and_noise_have_their_ranges() -> None:
    x = torch.full((3, 400, 1, 4, 4), 0.5)
    factor = augment_images(x, KEYS, "view", 0, 0.5, only(brightness=0.4))[..., 0, 0, 0] / 0.5
    assert 0.8 <= float(factor.min()) < 0.82
    assert 1.18 < float(factor.max()) <= 1.2 + 1e-6
    noisy = augment_images(x, KEYS, "view", 0, 0.5, only(noise=0.2)) - x
    assert float(noisy.std()) == pytest.approx(0.1, rel=0.05)
    x = images(3, 50, 1, 4, 4)
    y = augment_images(x, KEYS, "view", 0, 1.0, only(contrast=0.4))
    torch.testing.assert_close(y.mean((2, 3, 4)), x.mean((2, 3, 4)))
    ratio = y.std((2, 3, 4)) / x.std((2, 3, 4))
    assert 0.6 - 1e-4 <= float(ratio.min()) < 0.7
    assert 1.3 < float(ratio.max()) <= 1.4 + 1e-4


def test_blur_smooths_and_keeps_a_flat_image() -> None:
    x = images(3, 50, 1, 8, 8)
    y = augment_images(x, KEYS, "view", 0, 1.0, only(blur=1.0))
    assert (y.std((2, 3, 4)) < x.std((2, 3, 4))).all()
    flat = torch.full((3, 5, 1, 4, 4), 0.3)
    torch.testing.assert_close(augment_images(flat, KEYS, "view", 0, 1.0, only(blur=1.0)), flat)


@pytest.mark.parametrize(("size", "least", "most"), [(14, 2, 6), (4, 2, 2), (2, 1, 1)])
def test_the_erased_part_is_one_rectangle_inside_that_reaches_every_pixel(
    size: int, least: int, most: int
) -> None:
    x = torch.ones(3, 400, 2, size, size)
    gone = augment_images(x, KEYS, "view", 0, 1.0, only(erase=6)) == 0
    assert (gone[:, :, 0] == gone[:, :, 1]).all()
    hole = gone[:, :, 0]
    tall, wide = hole.any(-1).sum(-1), hole.any(-2).sum(-1)
    assert (hole.sum((-2, -1)) == tall * wide).all()
    assert tall.min() == least
    assert wide.max() == most
    assert tall.max() == most
    assert hole.any(0).any(0).all()


def table(groups: int = 3, rows: int = 200) -> tuple[Tensor, Tensor, Tensor]:
    """Rows where every cell tells its group, row and column; column 1 is three features wide."""
    spans = span_index([1, 3, 1])
    cell = (
        torch.arange(groups)[:, None, None] * 1e4 + torch.arange(50)[:, None] * 10 + torch.arange(5)
    )
    return torch.full((groups, rows, 5), -1.0), cell, spans


def test_span_index() -> None:
    assert span_index([1, 3, 1]).tolist() == [0, 1, 1, 1, 2]


def test_columns_are_replaced_whole_from_a_row_of_the_own_pool() -> None:
    x, pool, spans = table()
    y = corrupt_columns(x, pool, spans, KEYS, "scarf", 0, 0.3)
    swapped = y != x
    assert (swapped[..., 1] == swapped[..., 2]).all()
    assert (swapped[..., 1] == swapped[..., 3]).all()
    assert float(swapped.float().mean()) == pytest.approx(0.3, abs=0.05)
    number = y.long()
    assert (number % 10 == torch.arange(5))[swapped].all()
    assert (number // 10000 == torch.arange(3)[:, None, None])[swapped].all()
    source = number // 10 % 1000
    inside = swapped[..., 1]
    assert (source[..., 1] == source[..., 3])[inside].all()
    assert set(source[swapped].tolist()) == set(range(50))


def test_every_column_draws_its_own_row_and_switch() -> None:
    x, pool, spans = table()
    source = corrupt_columns(x, pool, spans, KEYS, "scarf", 0, 1.0).long() // 10 % 1000
    assert float((source[..., 0] == source[..., 4]).float().mean()) < 0.1
    swapped = corrupt_columns(x, pool, spans, KEYS, "scarf", 0, 0.5) != x
    assert 0.4 < float((swapped[..., 0] == swapped[..., 4]).float().mean()) < 0.6


def test_corruption_rates_zero_and_one_repeat_and_stacking() -> None:
    x, pool, spans = table()
    assert (corrupt_columns(x, pool, spans, KEYS, "scarf", 0, 0.0) == x).all()
    assert (corrupt_columns(x, pool, spans, KEYS, "scarf", 0, 1.0) != x).all()
    y = corrupt_columns(x, pool, spans, KEYS, "scarf", 3, 0.5)
    assert (corrupt_columns(x, pool, spans, KEYS, "scarf", torch.tensor(3), 0.5) == y).all()
    assert (corrupt_columns(x, pool, spans, KEYS, "scarf", 4, 0.5) != y).any()
    alone = corrupt_columns(x[1:2], pool[1:2], spans, KEYS[1:2], "scarf", 3, 0.5)
    assert (alone[0] == y[1]).all()
    one = corrupt_columns(x, pool[:, :1], spans, KEYS, "scarf", 0, 1.0)
    assert (one == pool[:, :1]).all()


@pytest.mark.parametrize(("height", "width"), [(14, 14), (3, 8)])
def test_the_grid_is_that_of_torch(height: int, width: int) -> None:
    maps = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
    theirs = F.affine_grid(maps, [5, 1, height, width], align_corners=False)
    torch.testing.assert_close(augment._grid(maps, height, width), theirs)
