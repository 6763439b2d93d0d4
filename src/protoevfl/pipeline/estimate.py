"""How long, how much memory, how many bytes: measured on small random parties of the same widths,
then scaled.

    time, bytes ~ k ( c + a * unaligned rows + b * aligned rows )

The method really runs, with an eighth of its epochs, on random rows: once, with twice the unaligned
rows, with twice the aligned rows and with twice the epochs. That gives a, b, c and how bytes depend
on epochs. Memory is counted, not measured: three copies of the rows that are used, and half a GiB
for the programs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from protoevfl.pipeline.train import train
from protoevfl.rows.table import OwnRows, PartyTable
from protoevfl.settings.method_choice import method_from

POOL, ALIGNED, SHORTER = 256, 64, 8
BASE = 1 << 29  # bytes of memory for Python, torch and pyarrow
COPIES = 3


@dataclass(frozen=True)
class Size:
    """What a party brings to a run."""

    shape: tuple[int, ...]  # of a row
    spans: tuple[tuple[int, int], ...] | None
    pool: int
    aligned: int  # shared rows that train
    query: int
    numbers: tuple[int, ...] = ()  # features that are numbers

    def bytes(self) -> int:
        cells = int(torch.Size(self.shape).numel()) * (self.pool + self.aligned + self.query)
        return cells * (4 if len(self.shape) == 1 else 1)


@dataclass(frozen=True)
class Estimate:
    seconds: float
    memory: int  # bytes
    traffic: int  # bytes over the borders, both ways together
    how: str


def estimate(
    facts: Mapping[str, Any],
    sizes: Sequence[Size],
    classes: int,
    device: str = "cpu",
    every_label: bool = False,
) -> Estimate:
    """`facts` of the method (method_facts) on parties of these sizes.

    every_label   whether the active party's own model takes part
    """
    _trial(
        facts, sizes, classes, ALIGNED, ALIGNED, 1000, device, every_label
    )  # the first run of a process pays for loading
    base = _trial(facts, sizes, classes, POOL, ALIGNED, SHORTER, device, every_label)
    more_pool = _trial(facts, sizes, classes, 2 * POOL, ALIGNED, SHORTER, device, every_label)
    more_aligned = _trial(facts, sizes, classes, POOL, 2 * ALIGNED, SHORTER, device, every_label)
    longer = _trial(facts, sizes, classes, POOL, ALIGNED, SHORTER // 2, device, every_label)
    pool = sum(s.pool for s in sizes) / len(sizes)
    aligned = sum(s.aligned for s in sizes[1:]) / max(1, len(sizes) - 1)

    def scaled(part: int) -> float:
        up = base[part] + max(0.0, more_pool[part] - base[part]) * (pool - POOL) / POOL
        return max(
            0.0, up + max(0.0, more_aligned[part] - base[part]) * (aligned - ALIGNED) / ALIGNED
        )

    # of bytes, from an eighth to all epochs
    stretch = (longer[1] - base[1]) * (SHORTER - 1) / max(1.0, base[1])
    memory = BASE + COPIES * sum(s.bytes() for s in sizes)
    how = (
        f"the method ran on random rows of the same widths ({POOL} unaligned, {ALIGNED} aligned, "
        "an eighth of the "
        "epochs) on this machine, scaled linearly; expect a factor of two"
    )
    return Estimate(SHORTER * scaled(0), memory, round(scaled(1) * (1 + stretch)), how)


def _trial(
    facts: Mapping[str, Any],
    sizes: Sequence[Size],
    classes: int,
    pool: int,
    aligned: int,
    shorter: int,
    device: str,
    every_label: bool,
) -> tuple[float, float]:
    """(seconds, bytes) of one small run."""
    settings = {name: _less(name, value, shorter) for name, value in facts["settings"].items()}
    method = method_from({**facts, "settings": settings})
    tables = [_random(s, m, pool, aligned) for m, s in enumerate(sizes)]
    labels = torch.arange(aligned) % classes
    own = None
    if every_label:
        known = torch.arange(aligned + pool) % classes
        active = tables[0]
        own = OwnRows(torch.cat([active.aligned, active.pool]), known, active.query, aligned)
    cost = train(method, tables, labels, classes, own=own, device=device).cost
    return float(cost["seconds"]), float(cost["bytes"]["up"] + cost["bytes"]["down"])


def _less(name: str, value: Any, shorter: int) -> Any:
    whole = name.rpartition(".")[2] == "epochs" and isinstance(value, int)
    return max(1, round(value / shorter)) if whole and value else value


def _random(size: Size, party: int, pool: int, aligned: int) -> PartyTable:
    source = torch.Generator().manual_seed(party)

    def rows(n: int) -> torch.Tensor:
        x = torch.randn(n, *size.shape, generator=source)
        return x if len(size.shape) == 1 else (50 * x + 128).clamp(0, 255).to(torch.uint8)

    return PartyTable(
        f"party {party}", rows(pool), rows(aligned), rows(1), size.spans, size.numbers
    )
