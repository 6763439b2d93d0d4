"""(b) Time, peak memory and bytes as pools, aligned rows, classes and parties grow, with the
exponent of growth.

Every point is a whole Proto-EVFL run (one epoch of each phase, one round) on made-up tables, on a
CPU in a fresh process so that its peak memory is its own. Alone: `python benchmarks/growth.py
'{"pool": 100000}'`.
"""

import gc
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

import torch

from machine import Line, clock, exponent, party, resident_mb, table
from protoevfl.core import random as rnd
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.lockstep import lockstep
from protoevfl.federation.middleware import Metered
from protoevfl.federation.owner import LabelOwner
from protoevfl.settings.presets import build

BASE = {"pool": 2_000, "aligned": 200, "classes": 10, "parties": 4}
SIZES = {
    "pool": (1_000, 10_000, 100_000, 1_000_000),
    "aligned": (200, 1_000, 10_000, 100_000),
    "classes": (2, 10, 100, 1_000),
    "parties": (2, 4, 8, 16, 32, 64),
}
SHORT = {
    "warm.epochs": 1,
    "rounds.count": 1,
    "rounds.epochs": 1,
    "rounds.guard": False,
    "head.epochs": 1,
}


def measure(sizes: Mapping[str, Sequence[int]], threads: int, device: str) -> Iterator[Line]:
    """One line per size; each runs in its own process (on a GPU in this one, whose peak memory can be
    forgotten)."""
    if device == "cuda":
        Whole(300, 40, 2, 2, device).run()  # start-up apart
    for axis, values in sizes.items():
        for value in values:
            point = {**BASE, axis: value}
            if axis == "classes":
                point["aligned"] = max(2_000, value)
            if device == "cuda":
                yield {"bench": "growth", "axis": axis, **on_gpu(**point)}
                continue
            point_json = json.dumps({**point, "threads": threads})
            done = subprocess.run(
                [sys.executable, __file__, point_json], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(f"{axis} = {value}: {done.stderr[-800:]}")
            yield {"bench": "growth", "axis": axis, **json.loads(done.stdout.splitlines()[-1])}


def one(pool: int, aligned: int, classes: int, parties: int, threads: int = 1) -> Line:
    """A whole run of this size: seconds, peak memory and how much of it the run added, bytes both
    ways."""
    torch.set_num_threads(threads)
    Whole(300, 40, 2, 2, "cpu").run()  # start-up apart
    start = resident_mb()
    whole = Whole(pool, aligned, classes, parties, "cpu")
    seconds, peak = clock(whole.run, "cpu"), resident_mb()
    return {
        "pool": pool,
        "aligned": aligned,
        "classes": classes,
        "parties": parties,
        "seconds": seconds,
        "memory_mb": peak,
        "added_mb": peak - start,
        "bytes": whole.bytes(),
    }


def on_gpu(pool: int, aligned: int, classes: int, parties: int) -> Line:
    """The same on a GPU, where memory is that of the GPU."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    whole = Whole(pool, aligned, classes, parties, "cuda")
    seconds, peak = clock(whole.run, "cuda"), torch.cuda.max_memory_allocated()
    return {
        "pool": pool,
        "aligned": aligned,
        "classes": classes,
        "parties": parties,
        "seconds": seconds,
        "memory_mb": peak / 2**20,
        "added_mb": (peak - start) / 2**20,
        "bytes": whole.bytes(),
    }


class Whole:
    """All phases on made-up tables of this size."""

    def __init__(self, pool: int, aligned: int, classes: int, parties: int, device: str) -> None:
        self.method, self.parties = (
            build("proto_evfl", dataset="table", overrides=SHORT),
            tuple(range(parties)),
        )
        labels = (
            rnd.permutation(torch.tensor([rnd.key("labels")]), "labels", 0, aligned)[0] % classes
        )
        tables = {(0, m): party("tables", m, pool, aligned) for m in self.parties}
        keys = {(0, m): rnd.key(0, "party", m) for m in self.parties}
        self.engine = Metered(Stacked(self.method, tables, keys, device))
        self.owner = LabelOwner(labels.to(device), classes, self.parties, rnd.key(0, "owner"))

    def run(self) -> None:
        lockstep({0: self.method.train(self.owner)}, self.engine)
        lockstep({0: self.method.predict(self.owner, self.parties)}, self.engine)

    def bytes(self) -> int:
        """What crossed, both ways."""
        traffic = self.engine.ledger(0)
        return int(traffic["up"] + traffic["down"])


def render(lines: Sequence[Line]) -> str:
    """A table for each axis, the exponents below it."""
    parts = []
    for axis in dict.fromkeys(x["axis"] for x in lines):
        points = [x for x in lines if x["axis"] == axis]
        cells = [
            [
                f"{x[axis]:,}",
                f"{x['seconds']:.2f}",
                f"{x['memory_mb']:,.0f}",
                f"{x['added_mb']:,.0f}",
                f"{x['bytes'] / 1e6:,.2f}",
            ]
            for x in points
        ]
        named = {"seconds": "seconds", "added memory": "added_mb", "bytes": "bytes"}
        fits = "; ".join(f"{name} {grows(points, axis, field)}" for name, field in named.items())
        heads = [axis, "seconds", "peak memory, MB", "added by the run, MB", "bytes both ways, MB"]
        parts.append(f"{table(heads, cells)}\n\nExponent of {axis}: {fits}.")
    return "\n\n".join(parts)


def grows(lines: Sequence[Line], axis: str, name: str) -> str:
    """The exponent over all sizes, and between the last two, where constants no longer hide it."""
    pairs = [(x[axis], x[name]) for x in lines if x[name] >= 1]
    if name == "seconds":
        pairs = [(x[axis], x[name]) for x in lines]
    if len(pairs) < 2:
        return "not to be seen"
    whole = exponent(*zip(*pairs, strict=True))
    last = exponent(*zip(*pairs[-2:], strict=True))
    return f"{whole:.2f} ({last:.2f} between the last two)"


if __name__ == "__main__":
    print(json.dumps(one(**{**BASE, **json.loads(sys.argv[1])})))
