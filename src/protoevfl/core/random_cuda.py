"""The draws of core.random on a GPU: one kernel each, where tensor operations take ninety.

A training step that is replayed as a CUDA graph consists of small kernels, and most of them would
draw random numbers. PyTorch compiles this one at its first use. It computes the same whole numbers
as core.random, so the same draws.

`draw` returns 32 random bits; or, with their bits read as a float, a uniform number, or a normal
one. A thread knows its place `at`; `half` says whether it takes the cosine or the sine of Box and
Muller's pair.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

BITS, UNIFORM, NORMAL = 0, 1, 2

# No `>`: PyTorch finds the function's name by the last one. So u / 65536u stands for a shift.
CODE = """
template <typename T> T draw(
    T at, T half, T low, T high, T when, T word, T angle, T kind) {
  auto mix = [](unsigned x) {
    x ^= x / 65536u;
    x *= 0x7FEB352Du;
    x ^= x / 32768u;
    x *= 0x846BA68Bu;
    return x ^ (x / 65536u);
  };
  auto bits = [&](T purpose) {
    unsigned begun = mix((unsigned)low ^ (unsigned)purpose);
    unsigned first = mix(begun + (unsigned)when);
    unsigned second = mix(mix((unsigned)high + (unsigned)when) ^ first);
    return mix(mix((unsigned)at ^ first) + second);
  };
  auto uniform = [&](T purpose) {
    return (float)(int)(bits(purpose) & 0xFFFFFFu) * 5.9604644775390625e-8f;
  };
  if (kind == 0) {
    return (T)bits(word);
  }
  float drawn = uniform(word);
  if (kind == 2) {
    float radius = ::sqrtf(::logf(1.0f - drawn) * -2.0f);
    float turn = uniform(angle) * 6.283185307179586f;
    drawn = (half ? ::sinf(turn) : ::cosf(turn)) * radius;
  }
  return (T)__float_as_int(drawn);
}
"""


@cache
def _kernel() -> Callable[..., Tensor]:
    draw: Callable[..., Tensor] = torch.cuda.jiterator._create_jit_fn(
        CODE, word=0, angle=0, kind=BITS
    )
    return draw


@cache
def _halves(n: int, device: torch.device) -> Tensor:
    """(n,): 0 in the first half, rounded up, then 1."""
    return (torch.arange(n, device=device) >= (n + 1) // 2).to(torch.int32)


def draw(
    positions: Tensor, keys: Tensor, counter: int | Tensor, word: int, angle: int, kind: int
) -> Tensor:
    """(G, n) int32 bits or float32 numbers of keys (G,) at mixed positions (n,)."""
    low, high = keys.to(torch.int32)[:, None], (keys >> 32).to(torch.int32)[:, None]
    if isinstance(counter, Tensor):
        when = counter.to(torch.int32)
    else:
        when = torch.full((), counter & 0x7FFFFFFF, dtype=torch.int32, device=keys.device)
    n = len(positions)
    half = _halves(n, keys.device)
    drawn = _kernel()(positions, half, low, high, when, word=word, angle=angle, kind=kind)
    return drawn if kind == BITS else drawn.view(torch.float32)
