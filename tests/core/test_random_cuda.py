"""The GPU's kernel is C++: here a compiler for the CPU compiles it, and a GPU runs it where there is
one."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from protoevfl.core import random as rnd
from protoevfl.core import random_cuda

CPU = torch.device("cpu")
KEYS = torch.tensor([rnd.key(0, "party", m) for m in range(4)] + [0, 1, -5, 2**62 + 12_345])
AROUND = """
#include <cmath>
#include <cstring>
static int __float_as_int(float x) {{ int bits; memcpy(&bits, &x, 4); return bits; }}
{code}
extern "C" void run(int n, const int *at, const int *half, int low, int high, int when, int word,
                    int angle, int kind, int *out) {{
  for (int i = 0; i < n; i++)
    out[i] = draw<int>(at[i], half[i], low, high, when, word, angle, kind);
}}
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("kernel")
    source: Path = folder / "draw.cpp"
    source.write_text(AROUND.format(code=random_cuda.CODE))
    library = folder / "draw.so"
    command = [compiler, "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", library, source]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def drawn(kernel: ctypes.CDLL, counter: int, n: int, kind: int) -> torch.Tensor:
    """(G, n) as `random_cuda.draw` would return them."""
    positions = rnd._pairs if kind == random_cuda.NORMAL else rnd._positions
    at, half = positions(n, CPU), random_cuda._halves(n, CPU)
    numbers = torch.empty(len(KEYS), n, dtype=torch.int32)
    words = rnd._word("x"), rnd._word("x/angle")
    for key, out in zip(KEYS, numbers, strict=True):
        low, high = int(key.to(torch.int32)), int((key >> 32).to(torch.int32))
        places = [ctypes.c_void_p(values.data_ptr()) for values in (at, half)]
        result = ctypes.c_void_p(out.data_ptr())
        kernel.run(n, *places, low, high, counter, *words, kind, result)
    return numbers if kind == random_cuda.BITS else numbers.view(torch.float32)


@pytest.mark.parametrize("counter", [0, 5, 2**31 - 1])
@pytest.mark.parametrize("n", [1, 7, 1000])
def test_it_draws_what_tensor_operations_draw(kernel: ctypes.CDLL, counter: int, n: int) -> None:
    bits = drawn(kernel, counter, n, random_cuda.BITS)
    assert torch.equal(bits, rnd._bits(KEYS, "x", counter, (n,)))
    uniform = drawn(kernel, counter, n, random_cuda.UNIFORM)
    assert torch.equal(uniform, rnd.uniform(KEYS, "x", counter, (n,)))
    normal = drawn(kernel, counter, n, random_cuda.NORMAL)
    torch.testing.assert_close(normal, rnd.normal(KEYS, "x", counter, (n,)), rtol=0, atol=1e-4)


def test_pytorch_finds_the_function() -> None:
    from torch.cuda.jiterator import _CodeParser

    assert _CodeParser(random_cuda.CODE).function_name == "draw"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("counter", [0, 5, torch.tensor(41), 2**31 - 1])
def test_a_gpu_draws_what_a_cpu_draws(counter: int | torch.Tensor) -> None:
    there = counter.cuda() if isinstance(counter, torch.Tensor) else counter
    for shape in [(1,), (7,), (3, 5), (2, 8, 33)]:
        bits = rnd._bits(KEYS.cuda(), "x", there, shape)
        assert torch.equal(bits.cpu(), rnd._bits(KEYS, "x", counter, shape))
        uniform = rnd.uniform(KEYS.cuda(), "x", there, shape)
        assert torch.equal(uniform.cpu(), rnd.uniform(KEYS, "x", counter, shape))
        normal = rnd.normal(KEYS.cuda(), "x", there, shape).cpu()
        torch.testing.assert_close(normal, rnd.normal(KEYS, "x", counter, shape), rtol=0, atol=1e-4)
