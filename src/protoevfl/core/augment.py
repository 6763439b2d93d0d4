"""Random views of rows for self-supervised learning, as few tensor operations on the device of the
rows.

Images: y = noise + brightness * contrast( blur( x( A . ) ) ) with a rectangle erased, A a random
affine map (scale, rotation, shift, flip: a random resized crop). Tables: each source column is
replaced, with probability `rate`, by its value in a random row of the pool (SCARF).

Randomness is counter-based (core.random): the view of a row depends on keys (G,), purpose, counter
and the row's place in the batch, not on what is stacked beside it. No gradient, no host
synchronisation.

    >>> keys = torch.tensor([1, 2])
    >>> augment_images(torch.rand(2, 5, 1, 4, 4), keys, "warm-up", 0).shape
    torch.Size([2, 5, 1, 4, 4])
    >>> x, pool = torch.zeros(2, 3, 4), torch.ones(2, 9, 4)
    >>> corrupt_columns(x, pool, span_index([1, 3]), keys, "warm-up", 0, rate=1.0).sum()
    tensor(24.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core.random import Counter, normal, uniform


@dataclass(frozen=True)
class ImageViews:
    """Which changes an image view makes, at strength 1; strength scales the ranges; below 0.5
    nothing is erased."""

    scale: float = 0.25  # zoom between 1 - scale and 1 + scale
    angle: float = 0.2  # radians, either way
    shift: float = 0.25  # of half the side, either way
    brightness: float = 0.4  # factor between 1 - b and 1 + b
    noise: float = 0.05  # standard deviation of pixel noise
    # largest side of the erased rectangle in pixels (at most half the image), 0: none
    erase: int = 6
    contrast: float = 0.0  # factor around the image's mean, between 1 - c and 1 + c
    blur: float = 0.0  # largest share of a 3 x 3 mean blended in
    flip: bool = False  # mirror half of the images left to right


DEFAULT_VIEWS = ImageViews()  # the warm-up's


@torch.no_grad()
def augment_images(
    x: Tensor,
    keys: Tensor,
    purpose: str,
    counter: Counter,
    strength: float = 1.0,
    views: ImageViews = DEFAULT_VIEWS,
) -> Tensor:
    """One random view of each image: x (G, B, c, H, W) in [0, 1] -> same shape (not clipped to [0,
    1])."""
    rows, channels, height, width = x.shape[1:]
    # (G B, 12), one draw for all the knobs
    u = uniform(keys, purpose, counter, (rows, 12)).flatten(0, 1)
    spread = (2 * u - 1) * strength  # in [-strength, strength)
    y = _move(x.reshape(-1, channels, height, width), spread, u, views)
    if views.blur:
        soft = F.avg_pool2d(y, 3, stride=1, padding=1, count_include_pad=False)
        y = torch.lerp(y, soft, _column(u[:, 6] * min(1.0, views.blur * strength)))
    if views.contrast:
        y = torch.lerp(
            y.mean((1, 2, 3), keepdim=True), y, _column(1 + views.contrast * spread[:, 7])
        )
    y.mul_(_column(1 + views.brightness * spread[:, 4]))  # y is ours: in place from here on
    if views.noise:
        bumps = normal(keys, purpose + "/noise", counter, (rows, channels, height, width))
        y.add_(bumps.view_as(y), alpha=views.noise * strength)
    if views.erase and strength >= 0.5:
        y.mul_(_hole(u[:, 8:12], height, width, views.erase))
    return y.view(x.shape)


def _column(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def _move(x: Tensor, spread: Tensor, u: Tensor, views: ImageViews) -> Tensor:
    """x (n, c, H, W) seen through a random affine map, zero outside; in grid_sample's coordinates
    [-1, 1]."""
    height, width = x.shape[-2:]
    scale, angle = 1 + views.scale * spread[:, 0], views.angle * spread[:, 1]
    across, down = scale * angle.cos(), scale * angle.sin()
    mirror = torch.where(u[:, 5] < 0.5, -1.0, 1.0) if views.flip else torch.ones_like(scale)
    shift_x, shift_y = views.shift * spread[:, 2], views.shift * spread[:, 3]
    aspect = height / width  # pixels are square, the coordinates are not
    first = torch.stack([mirror * across, -down * aspect, shift_x], 1)
    second = torch.stack([mirror * down / aspect, across, shift_y], 1)
    grid = _grid(torch.stack([first, second], 1), height, width)
    return F.grid_sample(x, grid.to(x), align_corners=False)


def _grid(maps: Tensor, height: int, width: int) -> Tensor:
    """Where each pixel comes from under maps (n, 2, 3) -> (n, H, W, 2): F.affine_grid as one
    product, an eighth of its time on a CPU."""
    right, down = (
        (2 * torch.arange(size, device=maps.device) + 1) / size - 1 for size in (width, height)
    )
    across, along = right.expand(height, width), down[:, None].expand(height, width)
    pixels = torch.stack([across, along, torch.ones_like(across)]).flatten(1)  # (3, H W)
    return (maps.flatten(0, 1) @ pixels).view(-1, 2, height, width).permute(0, 2, 3, 1)


def _hole(u: Tensor, height: int, width: int, largest: int) -> Tensor:
    """1 outside, 0 inside a random rectangle, sides 2 to `largest` pixels -> (n, 1, H, W); u (n,
    4)."""
    inside = []
    for axis, size in enumerate((height, width)):
        top = max(1, min(largest, size // 2))
        low = min(2, top)
        length = (low + u[:, axis] * (top - low + 1)).floor()  # (n,)
        start = (u[:, 2 + axis] * (size - length + 1)).floor()  # (n,)
        at = torch.arange(size, device=u.device)
        inside.append((at >= start[:, None]) & (at < (start + length)[:, None]))  # (n, size)
    return ~(inside[0][:, None, :, None] & inside[1][:, None, None, :])


def span_index(widths: Sequence[int], device: torch.device | str | None = None) -> Tensor:
    """Which source column each encoded feature belongs to -> (F,): widths [1, 3] -> [0, 1, 1,
    1]."""
    return torch.arange(len(widths)).repeat_interleave(torch.tensor(list(widths))).to(device)


@torch.no_grad()
def corrupt_columns(
    x: Tensor,
    pool: Tensor,
    spans: Tensor,
    keys: Tensor,
    purpose: str,
    counter: Counter,
    rate: float,
) -> Tensor:
    """x (G, B, F) with each column replaced, with probability rate, by that of a random row of pool
    (G, n, F).

    spans (F,) from `span_index`: the features of one category are replaced together, from the same
    pool row; every column draws its own row (the empirical marginals).
    """
    shape = (x.shape[1], x.shape[2])  # one draw per feature is enough for all columns: spans < F
    swap = uniform(keys, purpose + "/swap", counter, shape)[..., spans] < rate  # (G, B, F)
    rows = pool.shape[1]
    place = uniform(keys, purpose + "/row", counter, shape)[..., spans] * rows
    source = place.long().clamp_max(rows - 1)
    return torch.where(swap, pool.gather(1, source), x)
