"""Counter-based random numbers: number = hash(key_g, purpose, counter, position).

A draw depends on who draws (key), what for (purpose) and when (counter), never on who else is drawn
for in the same call. So a party gets the same numbers alone, stacked with others, or rebuilt after
a crash, and no generator state has to be stored. Everything is integer tensor arithmetic: no host
synchronisation, safe inside a CUDA graph (pass the counter as a tensor; on the CPU pass an int,
which is faster).

    >>> keys = torch.tensor([key(0, "party", 0), key(0, "party", 1)])
    >>> uniform(keys, "demo", 3, (2,)).shape
    torch.Size([2, 2])
    >>> bool((uniform(keys[1:], "demo", 3, (2,)) == uniform(keys, "demo", 3, (2,))[1:]).all())
    True
"""

import hashlib
import math
from functools import cache, lru_cache

import torch
from torch import Tensor

from protoevfl.core import random_cuda

Counter = int | Tensor


@cache
def key(*names: object) -> int:
    """A 63-bit key from any sequence of names, e.g. key(seed, "party", 2, "warm-up")."""
    digest = hashlib.sha256("\x1f".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def derive(keys: Tensor, *names: object) -> Tensor:
    """Child keys (G,) of parent keys (G,); runs on the host, so keep it out of inner loops."""
    return torch.tensor(
        [key(k, *names) for k in keys.tolist()], dtype=torch.int64, device=keys.device
    )


# shift, mask, factor, twice; the last is 0x846ba68b
_NUMBERS = (16, 0xFFFF, 0x7FEB352D, 15, 0x1FFFF, -2073319797)
# on the CPU wrapping a number costs more than
_TENSORS = tuple(torch.tensor(n, dtype=torch.int32) for n in _NUMBERS)
# an operation on a small tensor
_LOW24, _UNIT24 = torch.tensor(0xFFFFFF, dtype=torch.int32), torch.tensor(2.0**-24)


def _mix(x: Tensor) -> Tensor:
    """A bijective 32-bit mixer on a fresh int32 tensor, in place: twice x ^= x >>> shift, x *=
    factor; x ^= x >>> 16.

    int32 arithmetic wraps; >>> is >> with the copies of the sign masked out.

    This is lowbias32 of hash-prospector (C. Wellons, 2018) but for one digit: its second factor is
    0x846ca68b. How far the rate at which an input bit flips an output bit lies from 1/2, relative
    to it, root mean square over the 32 x 32 pairs and 2^30 inputs: 0.22 per mille here (1.8 at
    worst), 0.17 there (1.0). Both are far below what any draw of ours can show, and another factor
    would change every number recorded so far: it stays.
    """
    s16, m16, f16, s15, m15, f15 = _TENSORS if x.is_cpu else _NUMBERS
    x = x.bitwise_xor_((x >> s16).bitwise_and_(m16)).mul_(f16)
    x = x.bitwise_xor_((x >> s15).bitwise_and_(m15)).mul_(f15)
    return x.bitwise_xor_((x >> s16).bitwise_and_(m16))


def _mix_int(x: int) -> int:
    """`_mix` of one number on the host; 0 <= result < 2^32."""
    x &= 0xFFFFFFFF
    x = (x ^ (x >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ (x >> 15)) * 0x846BA68B & 0xFFFFFFFF
    return x ^ (x >> 16)


@cache
def _word(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little", signed=True)


@cache
def _positions(n: int, device: torch.device) -> Tensor:
    return _mix(torch.arange(n, device=device, dtype=torch.int32))


@lru_cache(maxsize=1 << 14)
def _beginning(key: int, purpose: str) -> int:
    return _mix_int(key ^ _word(purpose))


def _words_int(key: int, purpose: str, when: int) -> tuple[int, int]:
    first = _mix_int(_beginning(key, purpose) + when)
    second = _mix_int(_mix_int((key >> 32) + when) ^ first)
    # as signed 32-bit numbers
    return (first ^ 0x80000000) - 0x80000000, (second ^ 0x80000000) - 0x80000000


def _words(keys: Tensor, purpose: str, counter: Counter) -> Tensor:
    """Two int32 words per member, (2, G, 1): on the host when it knows everything, else on the
    keys' device."""
    if isinstance(counter, int) and keys.device.type == "cpu":
        words = [_words_int(key, purpose, counter & 0x7FFFFFFF) for key in keys.tolist()]
        return torch.tensor(words, dtype=torch.int32).T.unsqueeze(-1)
    low, high = keys.to(torch.int32), (keys >> 32).to(torch.int32)
    when = counter.to(torch.int32) if isinstance(counter, Tensor) else counter & 0x7FFFFFFF
    first = _mix(_mix(low ^ _word(purpose)) + when)  # (G,)
    second = _mix(_mix(high + when) ^ first)  # (G,)
    return torch.stack([first, second]).unsqueeze(-1)


def _bits(keys: Tensor, purpose: str, counter: Counter, shape: tuple[int, ...]) -> Tensor:
    """(G, *shape) int32, uniform over all 2^32 values."""
    if keys.is_cuda:
        return _on_gpu(keys, purpose, counter, shape, random_cuda.BITS)
    first, second = _words(keys, purpose, counter)  # (G, 1) each
    at = _positions(math.prod(shape), keys.device)  # (n,)
    x = _mix(_mix(at ^ first).add_(second))  # (G, n)
    return x.view(len(keys), *shape)


def _on_gpu(
    keys: Tensor, purpose: str, counter: Counter, shape: tuple[int, ...], kind: int
) -> Tensor:
    """The same draws by one kernel (core/random_cuda.py)."""
    n = math.prod(shape)
    at = _pairs(n, keys.device) if kind == random_cuda.NORMAL else _positions(n, keys.device)
    angle = _word(purpose + "/angle")
    drawn = random_cuda.draw(at, keys, counter, _word(purpose), angle, kind)
    return drawn.view(len(keys), *shape)


@cache
def _pairs(n: int, device: torch.device) -> Tensor:
    """Positions (n,) of Box and Muller's pairs: those of the first half twice."""
    first = _positions((n + 1) // 2, device)
    return torch.cat([first, first])[:n]


def uniform(keys: Tensor, purpose: str, counter: Counter, shape: tuple[int, ...]) -> Tensor:
    """(G, *shape) float32 in [0, 1)."""
    if keys.is_cuda:
        return _on_gpu(keys, purpose, counter, shape, random_cuda.UNIFORM)
    low, unit = (_LOW24, _UNIT24) if keys.is_cpu else (0xFFFFFF, 2.0**-24)
    return _bits(keys, purpose, counter, shape).bitwise_and_(low).float().mul_(unit)


def normal(keys: Tensor, purpose: str, counter: Counter, shape: tuple[int, ...]) -> Tensor:
    """(G, *shape) float32 standard normal, Box-Muller on pairs: sqrt(-2 ln u) (cos, sin)(2 pi
    v)."""
    if keys.is_cuda:
        return _on_gpu(keys, purpose, counter, shape, random_cuda.NORMAL)
    n = math.prod(shape)
    half = (n + 1) // 2
    u = uniform(keys, purpose, counter, (half,)).neg_().add_(1.0)  # (0, 1]
    v = uniform(keys, purpose + "/angle", counter, (half,)).mul_(2 * math.pi)
    r = u.log_().mul_(-2).sqrt_()
    return torch.cat([v.cos().mul_(r), v.sin_().mul_(r)], 1)[:, :n].reshape(len(keys), *shape)


def permutation(keys: Tensor, purpose: str, counter: Counter, n: int) -> Tensor:
    """(G, n) int64, a random order of 0..n-1 for each member."""
    return _bits(keys, purpose, counter, (n,)).argsort(dim=1, stable=True)


def beta_symmetric(
    keys: Tensor, purpose: str, counter: Counter, shape: tuple[int, ...], alpha: float
) -> Tensor:
    """(G, *shape) draws of Beta(alpha, alpha), for mixup; alpha = 1 is uniform, else Johnk's ratio
    of powers.

    Johnk accepts a pair (u, v) with u^(1/alpha) + v^(1/alpha) <= 1; eight pairs are drawn and the
    first one accepted is taken (none in under 2e-6 of draws for alpha <= 1: then 1/2).
    """
    if alpha == 1.0:
        return uniform(keys, purpose, counter, shape)
    u = uniform(keys, purpose, counter, (8, *shape)) ** (1 / alpha)
    v = uniform(keys, purpose + "/other", counter, (8, *shape)) ** (1 / alpha)
    ratio = torch.where(u + v <= 1, u / (u + v), torch.nan)  # (G, 8, *shape)
    first = (~ratio.isnan()).to(torch.int8).argmax(1, keepdim=True)
    return ratio.gather(1, first).squeeze(1).nan_to_num(0.5)
