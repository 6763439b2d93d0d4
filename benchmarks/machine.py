"""What the benchmarks share: the machine in words, a clock, made-up parties, JSON lines, tables, a
fitted exponent."""

import json
import math
import os
import platform
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.rows.table import PartyTable

Line = dict[str, Any]


def describe(device: str, threads: int) -> Line:
    """The machine a line was measured on, with how busy it was at that moment."""
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return {
        "on": device,
        "device": gpu or f"{processor()}, {threads} thread(s)",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def processor() -> str:
    """The processor's name where Linux tells it."""
    info = Path("/proc/cpuinfo")
    names = (
        [x.split(":")[1].strip() for x in info.read_text().splitlines() if "model name" in x]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()


def clock(work: Callable[[], object], device: str = "cpu", repeat: int = 1) -> float:
    """The shortest of `repeat` times of the work in seconds (other programs can only make it
    longer)."""
    times = []
    for _ in range(repeat):
        start = now(device)
        work()
        times.append(now(device) - start)
    return min(times)


def step_seconds(train: Callable[[int], object], steps: int, device: str, repeat: int = 1) -> float:
    """Seconds of one step of `train(epochs)` with `steps` steps an epoch, start-up apart.

    On a GPU a run begins with plain steps and the capture of a graph, which a long run does not
    notice: what five epochs take longer than one is divided by four epochs' steps (unless the first
    took seconds: then it is taken).
    """
    few = clock(lambda: train(1), device, repeat)
    if device != "cuda" or few > 2:
        return few / steps
    return max(clock(lambda: train(5), device, repeat) - few, 0.0) / (4 * steps)


def now(device: str) -> float:
    """Seconds, with the device caught up; on one thread of the CPU processor seconds: other
    programs do not count."""
    if device == "cuda":
        torch.cuda.synchronize()
    return (
        time.process_time()
        if device == "cpu" and torch.get_num_threads() == 1
        else time.perf_counter()
    )


def processor_seconds() -> float:
    """Seconds that all cores spent on this process, its threads and its processes that have
    ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(s.ru_utime + s.ru_stime for s in spent)


def resident_mb() -> float:
    """Peak resident memory of this process (on Linux from /proc: getrusage starts at the
    parent's)."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def party(
    kind: str, index: int, pool: int, aligned: int, query: int = 64, columns: int = 10
) -> PartyTable:
    """A made-up party: `images` of 2 x 14 x 14 bytes (half a Fashion-MNIST picture) or `tables` of
    10 columns."""
    keys = torch.tensor([rnd.key("benchmark", index)])
    parts = [
        _rows(kind, keys, name, n, columns)
        for name, n in (("pool", pool), ("aligned", aligned), ("query", query))
    ]
    spans = None if kind == "images" else tuple((i, i + 1) for i in range(columns))
    return PartyTable(f"party {index + 1}", *parts, spans=spans)


def _rows(kind: str, keys: Tensor, name: str, rows: int, columns: int) -> Tensor:
    if kind == "images":
        return (255 * rnd.uniform(keys, name, 0, (rows, 2, 14, 14))[0]).to(torch.uint8)
    return rnd.normal(keys, name, 0, (rows, columns))[0]


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """b of the best fit cost = a size^b (least squares of the logarithms).

    >>> round(exponent([1, 2, 4], [3, 6, 12]), 6)
    1.0
    """
    x, y = [math.log(s) for s in sizes], [math.log(max(c, 1e-9)) for c in costs]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum(
        (a - mx) ** 2 for a in x
    )


def table(heads: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)


def write(path: Path, lines: Sequence[Line]) -> None:
    """Adds JSON lines to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
