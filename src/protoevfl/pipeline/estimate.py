"""How long, how much memory, how many bytes: measured on random parties of the same widths, then
scaled.

    time  = (fixed + epochs) * growth with the rows,    bytes ~ aligned rows, epochs

The method really runs, with its measurement on test rows: on few rows with an eighth of its epochs,
with a quarter of them where there are any, and on four times as many rows (never more than there
are). The second run tells what epochs cost, the third how the cost grows with the rows.
Processor time is compared, which other programs do not disturb, and turned into seconds by how long
this machine takes for it now. Memory is counted, not measured: three copies of the rows that are
used, and half a GiB for the programs.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from protoevfl.method import Report
from protoevfl.observer import Observer
from protoevfl.pipeline.threads import is_small, one_thread
from protoevfl.pipeline.train import train
from protoevfl.rows.table import OwnRows, PartyTable
from protoevfl.settings.config import LabelConfig
from protoevfl.settings.method_choice import method_from

POOL, ALIGNED = 256, 64  # rows of the smallest trial
LEAST = 20  # rows of a trial, whatever there are
LARGER = 4  # times as many rows in the largest trial
SHORTER = 8  # an eighth of the epochs
EVERY_EPOCH = 1000  # so many times fewer: one each
NOISE = 1.25  # runs nearer to each other cost the same
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


@dataclass(frozen=True)
class _Cost:
    """Of one small run."""

    processor: float  # seconds of all threads
    seconds: float  # on the clock
    traffic: float  # bytes
    rows: float  # of all parties together
    aligned: int
    stepwise: bool  # whether it trained in steps or epochs at all


class _Steps(Observer):
    """Whether anything happened step by step."""

    heard = False

    def progress(self, what: str, done: int, total: int) -> None:
        self.heard = self.heard or total > 1

    def report(self, report: Report, run: int = 0) -> None:
        self.heard = self.heard or report.steps > 1


def estimate(
    facts: Mapping[str, Any],
    sizes: Sequence[Size],
    classes: int,
    device: str = "cpu",
    every_label: bool = False,
    reading: float = 0.0,
) -> Estimate:
    """`facts` of the method (method_facts) on parties of these sizes.

    every_label   whether the active party's own model takes part
    reading       seconds that reading and encoding the files took
    """

    def trial(times: int, shorter: int) -> _Cost:
        pools, aligned = _cut(sizes, times)
        return _trial(facts, sizes, classes, pools, aligned, shorter, device, every_label)

    images = any(len(size.shape) > 1 for size in sizes)
    with one_thread(
        is_small([(s.pool + s.aligned, *s.shape) for s in sizes])
    ):  # as training has it
        first = trial(0, EVERY_EPOCH)  # pays for what a process loads once
        few = trial(1, SHORTER)
        longer = trial(1, SHORTER // 2) if few.stepwise else few
        many = trial(2 if images else LARGER, SHORTER)
    loading = max(0.0, first.seconds - few.seconds / 2)
    pace = (few.seconds + many.seconds) / (few.processor + many.processor)
    pool = sum(s.pool for s in sizes)
    aligned = sum(s.aligned for s in sizes[1:]) / max(1, len(sizes) - 1)
    full_rows = pool + aligned * len(sizes)
    seconds = loading + reading + pace * _all_epochs(few, longer) * _growth(few, many, full_rows)
    memory = BASE + COPIES * sum(s.bytes() for s in sizes)
    how = (
        f"the method ran on {round(many.rows):,} random rows of the same widths on this machine as "
        "it is now, and was scaled to all rows and epochs; expect a factor of two"
    )
    return Estimate(seconds, memory, round(_all_traffic(few, longer, many, aligned)), how)


def _all_epochs(few: _Cost, longer: _Cost) -> float:
    """Processor time on few rows with every epoch: the part that grows with the epochs, if there
    is one beyond the noise, and the fixed one."""
    if longer.processor < NOISE * few.processor:
        return few.processor
    of_epochs = (longer.processor - few.processor) * SHORTER
    return max(0.0, few.processor - of_epochs / SHORTER) + of_epochs


def _growth(few: _Cost, many: _Cost, rows: float) -> float:
    """How many times the few rows' cost all rows take."""
    if many.rows <= few.rows:
        return 1.0
    slope = max(0.0, many.processor - few.processor) / (many.rows - few.rows)
    return max(0.1, 1 + slope * (rows - few.rows) / few.processor)


def _all_traffic(few: _Cost, longer: _Cost, many: _Cost, aligned: float) -> float:
    """Bytes with every epoch of all aligned rows; both are exact where they are linear."""
    more = (longer.traffic - few.traffic) * (SHORTER - 1) / max(1.0, few.traffic)
    slope = 0.0
    if many.aligned > few.aligned:
        slope = (many.traffic - few.traffic) / (many.aligned - few.aligned)
    return max(0.0, few.traffic + slope * (aligned - few.aligned)) * (1 + more)


def _cut(sizes: Sequence[Size], times: int) -> tuple[list[int], int]:
    """(unaligned rows per party, aligned rows) of a trial, never more than there are but for a
    few."""
    pools = [max(LEAST, min(times * POOL, size.pool)) for size in sizes]
    most = max(LEAST, *(size.aligned for size in sizes[1:]))
    return pools, max(LEAST, min(times * ALIGNED, most))


def _trial(
    facts: Mapping[str, Any],
    sizes: Sequence[Size],
    classes: int,
    pools: Sequence[int],
    aligned: int,
    shorter: int,
    device: str,
    every_label: bool,
) -> _Cost:
    """What one small run costs, from training to its figures on test rows."""
    settings = {name: _less(name, value, shorter) for name, value in facts["settings"].items()}
    method = method_from({**facts, "settings": settings})
    test = max(2 * classes, aligned // 4)
    tables = [_random(s, m, pools[m], aligned, test) for m, s in enumerate(sizes)]
    labels = torch.arange(aligned) % classes
    own = None
    if every_label:
        known = torch.arange(aligned + pools[0]) % classes
        active = tables[0]
        own = OwnRows(torch.cat([active.aligned, active.pool]), known, active.query, aligned)
    processor, start = time.process_time(), time.perf_counter()
    steps = _Steps()
    trained = train(method, tables, labels, classes, own=own, device=device, observer=steps)
    names = [table.name for table in tables]
    label = LabelConfig(names[0], "label")
    trained.stored_owner(names, list(map(str, range(classes))), label, labels[:test], {})
    return _Cost(
        processor=time.process_time() - processor,
        seconds=time.perf_counter() - start,
        traffic=float(sum(trained.cost["bytes"][way] for way in ("up", "down"))),
        rows=sum(pools) + aligned * len(sizes),
        aligned=aligned,
        stepwise=steps.heard,
    )


def _less(name: str, value: Any, shorter: int) -> Any:
    whole = name.rpartition(".")[2] == "epochs" and isinstance(value, int)
    return max(1, round(value / shorter)) if whole and value else value


def _random(size: Size, party: int, pool: int, aligned: int, query: int) -> PartyTable:
    source = torch.Generator().manual_seed(party)

    def rows(n: int) -> torch.Tensor:
        x = torch.randn(n, *size.shape, generator=source)
        return x if len(size.shape) == 1 else (50 * x + 128).clamp(0, 255).to(torch.uint8)

    return PartyTable(
        f"party {party}", rows(pool), rows(aligned), rows(query), size.spans, size.numbers
    )
