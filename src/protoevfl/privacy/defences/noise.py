"""Where noise comes from: a secret key and a cryptographic stream in deployment, counters in a
simulation.

    noise(name, shape) -> standard normal (float64), a function of (key, name)

The same name gives the same noise, so a run that is resumed after a crash repeats its messages bit
for bit. A name must therefore contain a digest of the data the noise is added to (`digest`): the
same noise on two different sums would cancel in their difference.

    >>> source = SecretNoise(b"k" * 32)
    >>> bool((source("a", (2, 3)) == source("a", (2, 3))).all()), bool((source("a", (2,)) == source("b", (2,))).any())
    (True, False)
"""

import hashlib
import math
import secrets
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from protoevfl.core import random as rnd


class Noise(Protocol):
    """A source of noise."""

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Standard normal (float64) of this shape."""

    def uniform(self, name: str, count: int) -> Tensor:
        """(count,) float64 in (0, 1)."""

    def raw(self, name: str, count: int) -> bytes:
        """So many bytes, for keys."""


def _box_muller(uniform: Tensor, shape: tuple[int, ...]) -> Tensor:
    """sqrt(-2 ln u) (cos, sin)(2 pi v) from uniform (2h,) in (0, 1) -> the first numbers, as
    `shape`."""
    u, v = uniform.chunk(2)
    radius, angle = (-2 * u.log()).sqrt(), 2 * math.pi * v
    return torch.cat([radius * angle.cos(), radius * angle.sin()])[: math.prod(shape)].view(shape)


def _even(shape: tuple[int, ...]) -> int:
    return 2 * math.ceil(math.prod(shape) / 2)


@dataclass(frozen=True)
class SecretNoise:
    """For deployment: SHAKE-256 of a 256-bit secret from the operating system; nobody without it
    can tell the noise.

    The key belongs in a file only the label owner can read, as long as the run lives; lost, the run
    cannot resume.
    """

    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def raw(self, name: str, count: int) -> bytes:
        return hashlib.shake_256(self.key + name.encode()).digest(count)

    def uniform(self, name: str, count: int) -> Tensor:
        stream = self.raw(name, 8 * count)
        words = np.frombuffer(stream, dtype="<u8") >> np.uint64(11)  # 53 bits
        return torch.from_numpy((words.astype(np.float64) + 0.5) * 2.0**-53)

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return _box_muller(self.uniform(name, _even(shape)), shape)


@dataclass(frozen=True)
class SeededNoise:
    """For simulation: repeatable from a run's seed, hence no protection at all outside one."""

    seed: int

    def raw(self, name: str, count: int) -> bytes:
        return hashlib.shake_256(f"{self.seed}/{name}".encode()).digest(count)

    def uniform(self, name: str, count: int) -> Tensor:
        keys = torch.tensor([rnd.key(self.seed, "privacy", name)])
        return (rnd.uniform(keys, "uniform", 0, (count,))[0].double() + 2.0**-25).clamp(
            max=1 - 2.0**-25
        )

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return _box_muller(self.uniform(name, _even(shape)), shape)


def digest(*tensors: Tensor) -> str:
    """16 hexadecimal digits that depend on every bit of the tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        total.update(f"{plain.dtype}{list(plain.shape)}".encode())
        total.update(plain.numpy().tobytes())
    return total.hexdigest()[:16]
