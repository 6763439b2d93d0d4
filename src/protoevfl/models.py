"""Extractors and layers with a leading group axis G: G small networks as one batched model.

Every parameter and buffer is (G, ...), so a member is a slice and stacking is concatenation.
Members are initialised from their own key, hence equal alone and stacked. Layers in front of
batch-norm have no bias. Convolutions run as one grouped convolution, linear layers as one batched
product: measured on one H200 at about a tenth of the time of a loop over 20 networks
(docs/notes/speed.md).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protoevfl import distributed
from protoevfl.core import random as rnd


def _init(keys: Tensor, name: str, shape: tuple[int, ...], fan_in: int) -> nn.Parameter:
    return nn.Parameter((2 * rnd.uniform(keys, name, 0, shape) - 1) / math.sqrt(fan_in))


class Linear(nn.Module):
    """y = x W + b for each member: x (G, B, i) -> (G, B, o)."""

    def __init__(self, keys: Tensor, name: str, i: int, o: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = _init(keys, name, (i, o), i)
        self.bias = nn.Parameter(torch.zeros(len(keys), 1, o, device=keys.device)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return torch.bmm(x, self.weight)
        return torch.baddbmm(self.bias, x, self.weight)


class _Conv(nn.Module):
    """5x5 (or kxk) convolution of each member: x (B, G*ci, H, W) -> (B, G*co, H, W)."""

    def __init__(
        self, keys: Tensor, name: str, ci: int, co: int, k: int = 5, bias: bool = True
    ) -> None:
        super().__init__()
        self.weight = _init(keys, name, (co, ci, k, k), ci * k * k)
        self.bias = nn.Parameter(torch.zeros(len(keys), co, device=keys.device)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        g, _, _, k, _ = self.weight.shape
        bias = None if self.bias is None else self.bias.flatten()
        return F.conv2d(x, self.weight.flatten(0, 1), bias, padding=k // 2, groups=g)


class BatchNorm(nn.Module):
    """Batch normalisation of each member's channels: x (B, G*c, ...). `track` off leaves the
    running buffers."""

    def __init__(self, keys: Tensor, c: int, affine: bool = True) -> None:
        super().__init__()
        g = len(keys)
        self.weight = nn.Parameter(torch.ones(g, c, device=keys.device)) if affine else None
        self.bias = nn.Parameter(torch.zeros(g, c, device=keys.device)) if affine else None
        self.register_buffer("mean", torch.zeros(g, c, device=keys.device))
        self.register_buffer("var", torch.ones(g, c, device=keys.device))
        self.track = True

    def forward(self, x: Tensor) -> Tensor:
        mean = self.get_buffer("mean").view(-1)
        var = self.get_buffer("var").view(-1)
        if self.training and not self.track:
            mean, var = mean.clone(), var.clone()
        weight = None if self.weight is None else self.weight.flatten()
        bias = None if self.bias is None else self.bias.flatten()
        if self.training and (rows := distributed.batch_rows()) is not None:
            return _shared_norm(x, rows, mean, var, weight, bias)
        return F.batch_norm(x, mean, var, weight, bias, self.training, 0.1, 1e-5)


def _shared_norm(
    x: Tensor, rows: int, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """The same for a share x (b, C, ...) of a batch of `rows` rows that several processes have;
    moves mean and var."""
    y, seen, spread, n = distributed.normalise(x, rows)
    mean.lerp_(seen, 0.1)
    var.lerp_(spread * (n / max(1, n - 1)), 0.1)
    like = (1, -1, *[1] * (x.dim() - 2))
    if weight is not None and bias is not None:
        y = y * weight.view(like) + bias.view(like)
    return y


def rows_norm(norm: nn.Module, x: Tensor) -> Tensor:
    """Applies a BatchNorm to x (G, B, c)."""
    g, b, c = x.shape
    out: Tensor = norm(x.transpose(0, 1).reshape(b, g * c))
    return out.view(b, g, c).transpose(0, 1)


class Extractor(nn.Module):
    """x (G, B, ...) -> embeddings (G, B, width). `layers` also returns inner representations."""

    width: int

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return distributed.split(lambda rows: self.layers(rows)["output"], x)


class LeNet(Extractor):
    """LeNet-5 on c x side x side views; with batch-norm unless `norm` is off (the paper's printed
    setting)."""

    def __init__(self, keys: Tensor, c: int, side: int, width: int = 84, norm: bool = True) -> None:
        super().__init__()
        self.width, flat = width, 16 * (side // 2 // 2) ** 2
        self.conv1 = _Conv(keys, "conv1", c, 6, bias=not norm)
        self.conv2 = _Conv(keys, "conv2", 6, 16, bias=not norm)
        self.fc1 = Linear(keys, "fc1", flat, 120, not norm)
        self.fc2 = Linear(keys, "fc2", 120, width, not norm)
        self.bn1: nn.Module = BatchNorm(keys, 6) if norm else nn.Identity()
        self.bn2: nn.Module = BatchNorm(keys, 16) if norm else nn.Identity()
        self.bn3: nn.Module = BatchNorm(keys, 120) if norm else nn.Identity()
        self.bn4: nn.Module = BatchNorm(keys, width, affine=False) if norm else nn.Identity()

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        g = len(x)
        x = x.transpose(0, 1).flatten(1, 2)  # (B, G*c, H, W)
        # a grouped convolution in a fifth of the time (docs/notes/speed.md)
        if g > 1 and not x.is_cuda:
            x = x.contiguous(memory_format=torch.channels_last)
        x = F.relu(F.max_pool2d(self.bn1(self.conv1(x)), 2))  # (B, G*6, H/2, W/2)
        # (B, G*16, H/4, W/4); pooled first: fewer to rectify
        x = F.relu(F.max_pool2d(self.bn2(self.conv2(x)), 2))
        conv = x.reshape(len(x), g, math.prod(x.shape[1:]) // g).transpose(0, 1)  # (G, B, flat)
        hidden = F.relu(rows_norm(self.bn3, self.fc1(conv)))  # (G, B, 120)
        return {"output": rows_norm(self.bn4, self.fc2(hidden)), "hidden": hidden, "conv": conv}


class WideNet(Extractor):
    """Four 3x3 convolutions (32, 32, 64, 64) and a linear layer, batch-norm after each: an own
    model's network."""

    def __init__(self, keys: Tensor, c: int, side: int, width: int = 128) -> None:
        super().__init__()
        self.width = width
        channels = (c, 32, 32, 64, 64)
        self.convs = nn.ModuleList(
            _Conv(keys, f"conv{n}", i, o, k=3, bias=False)
            for n, (i, o) in enumerate(zip(channels, channels[1:], strict=False))
        )
        self.norms = nn.ModuleList(BatchNorm(keys, o) for o in channels[1:])
        # a picture of 32 x 32 ends as 4 x 4, one of 14 x 14 as 3 x 3
        self.pools = 3 if side >= 24 else 2
        flat = 64 * (side >> self.pools) ** 2
        self.linear = Linear(keys, "linear", flat, width, bias=False)
        self.last_norm = BatchNorm(keys, width)

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        g = len(x)
        x = x.transpose(0, 1).flatten(1, 2)  # (B, G*c, H, W)
        for n, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = F.relu(norm(conv(x)))
            if n % 2:
                x = F.max_pool2d(x, 2)
        if self.pools == 3:
            x = F.max_pool2d(x, 2)
        flat = x.reshape(len(x), g, math.prod(x.shape[1:]) // g).transpose(0, 1)  # (G, B, flat)
        return {"output": F.relu(rows_norm(self.last_norm, self.linear(flat)))}


class _SkipMLP(Extractor):
    """Two-layer perceptron plus a linear path that keeps the columns' linear information; for
    tables."""

    def __init__(self, keys: Tensor, columns: int, width: int = 64, hidden: int = 128) -> None:
        super().__init__()
        self.width = width
        self.fc1 = Linear(keys, "fc1", columns, hidden, False)
        self.fc2 = Linear(keys, "fc2", hidden, width, False)
        self.skip = Linear(keys, "skip", columns, width, False)
        self.bn1 = BatchNorm(keys, hidden)
        self.bn2 = BatchNorm(keys, width, affine=False)

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        hidden = F.relu(rows_norm(self.bn1, self.fc1(x)))
        return {"output": rows_norm(self.bn2, self.fc2(hidden) + self.skip(x)), "hidden": hidden}


class _MLP5(Extractor):
    """Five linear layers, as the paper prints for tables; batch-norm unless `norm` is off."""

    def __init__(
        self, keys: Tensor, columns: int, width: int = 64, hidden: int = 128, norm: bool = True
    ) -> None:
        super().__init__()
        self.width = width
        sizes = [columns, hidden, hidden, hidden, hidden, width]
        pairs = list(zip(sizes, sizes[1:], strict=False))
        self.linears = nn.ModuleList(
            Linear(keys, f"fc{n}", i, o, not norm) for n, (i, o) in enumerate(pairs)
        )
        self.norms = nn.ModuleList(
            BatchNorm(keys, o, affine=n < 4) if norm else nn.Identity()
            for n, (_, o) in enumerate(pairs)
        )

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        hidden = x
        for n, (linear, norm) in enumerate(zip(self.linears, self.norms, strict=True)):
            x = rows_norm(norm, linear(x))
            if n < 4:
                x = hidden = F.relu(x)
        return {"output": x, "hidden": hidden}


def extractor(
    shape: tuple[int, ...],
    keys: Tensor,
    norm: bool = True,
    table: str = "skip",
    width: int | None = None,
) -> Extractor:
    """The extractor for rows of this shape: (c, H, W) images (84 wide unless told) or (columns,)
    tables (64 wide)."""
    if len(shape) == 3:
        return LeNet(keys, shape[0], shape[1], width or 84, norm=norm)
    if table == "mlp5":
        return _MLP5(keys, shape[0], width or 64, norm=norm)
    return _SkipMLP(keys, shape[0], width or 64)


def inputs(rows: Tensor) -> Tensor:
    """Stored rows as network input: bytes become 0..1, floats stay."""
    return rows.float() / 255 if rows.dtype == torch.uint8 else rows


@torch.no_grad()
def embed(
    net: nn.Module,
    rows: Tensor | distributed.Dealt,
    layers: tuple[str, ...] = ("output",),
    batch: int = 2048,
) -> Tensor:
    """Embeddings (G, n, width) of stored rows (G, n, ...), evaluation mode, several layers side by
    side."""
    if isinstance(rows, distributed.Dealt):
        return rows.whole(lambda share: embed(net, share, layers, batch))
    net.eval()
    parts = []
    for start in range(0, max(1, rows.shape[1]), batch):  # no rows give embeddings of no rows
        by_layer = net.layers(inputs(rows[:, start : start + batch]))  # type: ignore[operator]
        parts.append(torch.cat([by_layer[name] for name in layers], -1))
    net.train()
    return torch.cat(parts, 1)
