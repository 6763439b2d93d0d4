"""How long, how much memory, how many bytes: measured on random parties of the same widths, then
scaled.

    time  = (fixed + epochs) * growth with the rows,    bytes ~ aligned rows, epochs

The method really runs: on few rows with an eighth of its epochs, with a quarter of them where there
are any, on several times as many unaligned rows and on several times as many aligned ones (never
more than there are). So what epochs cost, and how the cost grows with either kind of rows, is
measured. Test rows are predicted once, by all parties, and counted for each subset of them.
Processor time is compared, which other programs do not disturb, and turned into seconds by how long
this machine takes for it now. Memory is counted, not measured: three copies of the rows that are
used, and half a GiB for the programs.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from protoevfl.method import Report
from protoevfl.observer import Observer
from protoevfl.pipeline.threads import is_small, one_thread
from protoevfl.pipeline.train import subsets_of, train
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.rows.table import OwnRows, PartyTable
from protoevfl.settings.config import LabelConfig
from protoevfl.settings.method_choice import method_from

POOL, ALIGNED = 256, 64  # rows of the smallest trial
LEAST = 20  # rows of a trial, whatever there are
LARGER = 8  # times as many unaligned rows in the largest trial of tables
LARGER_ALIGNED = 12  # times as many aligned ones: small models are cross-validated more often
SHORTER = 8  # an eighth of the epochs
EVERY_EPOCH = 1000  # so many times fewer: one each
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
    taken: float  # the same, as long as the trial itself took
    traffic: float  # bytes
    pool: int  # unaligned rows of all parties together
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
    privacy: PrivacySettings | None = None,
) -> Estimate:
    """`facts` of the method (method_facts) on parties of these sizes.

    every_label   whether the active party's own model takes part
    reading       seconds that reading and encoding the files took
    privacy       the defences of the run; what they cost counts
    """
    # without rows of its own a party learns from the aligned ones
    sizes = [replace(s, pool=s.pool or s.aligned) for s in sizes]
    pool = sum(s.pool for s in sizes)
    aligned = sum(s.aligned for s in sizes[1:]) / max(1, len(sizes) - 1)

    def trial(pool: int, aligned: int, shorter: int) -> _Cost:
        pools = [max(LEAST, min(pool, size.pool)) for size in sizes]
        shared = min(aligned, *(size.aligned for size in sizes[1:]))
        shared = max(LEAST, 2 * classes, shared)
        return _trial(facts, sizes, classes, pools, shared, shorter, device, every_label, privacy)

    images = any(len(size.shape) > 1 for size in sizes)
    small = is_small([(s.pool + s.aligned, *s.shape) for s in sizes])
    with one_thread(small):  # as training has it
        first = trial(LEAST, LEAST, EVERY_EPOCH)  # pays for what a process loads once
        few = trial(POOL, ALIGNED, SHORTER)
        longer = trial(POOL, ALIGNED, SHORTER // 2) if few.stepwise else few
        more_pool = few
        if pool > 2 * few.pool:
            more_pool = trial((2 if images else LARGER) * POOL, ALIGNED, SHORTER)
        more_aligned = few
        if aligned > few.aligned:
            more_aligned = trial(POOL, (3 if images else LARGER_ALIGNED) * ALIGNED, SHORTER)
    tried = (few, more_pool, more_aligned)
    pace = sum(t.seconds for t in tried) / sum(t.processor for t in tried)
    per_row = _per_row(few, more_pool, "pool"), _per_row(few, more_aligned, "aligned")
    more = per_row[0] * (pool - few.pool) + per_row[1] * (aligned - few.aligned)
    growth = max(0.1, 1 + more / few.processor)
    loading = max(0.0, first.taken - few.taken / 2)
    seconds = loading + reading + pace * growth * _all_epochs(few, longer)
    memory = BASE + COPIES * sum(s.bytes() for s in sizes)
    how = (
        f"the method ran on {more_pool.pool:,} random rows of the same widths on this machine as "
        "it is now, and was scaled to all rows and epochs; expect a factor of two"
    )
    traffic = _all_traffic(few, longer, more_aligned, aligned)
    return Estimate(seconds, memory, round(traffic), how)


def _all_epochs(few: _Cost, longer: _Cost) -> float:
    """Processor time on few rows with every epoch: the part that grows with the epochs, and the
    fixed one."""
    of_epochs = max(0.0, longer.processor - few.processor) * SHORTER
    return max(0.0, few.processor - of_epochs / SHORTER) + of_epochs


def _per_row(few: _Cost, more: _Cost, kind: str) -> float:
    """Processor time that a further row of a kind takes; 0 where there are no further rows."""
    rows: int = getattr(more, kind) - getattr(few, kind)
    return max(0.0, more.processor - few.processor) / rows if rows > 0 else 0.0


def _all_traffic(few: _Cost, longer: _Cost, more_aligned: _Cost, aligned: float) -> float:
    """Bytes with every epoch of all aligned rows; both are exact where they are linear."""
    more = (longer.traffic - few.traffic) * (SHORTER - 1) / max(1.0, few.traffic)
    further = more_aligned.aligned - few.aligned
    slope = (more_aligned.traffic - few.traffic) / further if further > 0 else 0.0
    return max(0.0, few.traffic + slope * (aligned - few.aligned)) * (1 + more)


def _trial(
    facts: Mapping[str, Any],
    sizes: Sequence[Size],
    classes: int,
    pools: Sequence[int],
    aligned: int,
    shorter: int,
    device: str,
    every_label: bool,
    privacy: PrivacySettings | None = None,
) -> _Cost:
    """What one small run costs, with its figures on test rows."""
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
    steps, start = _Steps(), _Clock()
    trained = train(
        method, tables, labels, classes, own=own, privacy=privacy, device=device, observer=steps
    )
    names = [table.name for table in tables]
    label = LabelConfig(names[0], "label")
    owner = trained.owner_without_figures(
        names, list(map(str, range(classes))), label, labels[:test]
    )
    training = _Clock()
    owner.subset(owner.test, tuple(range(len(names))))
    end = _Clock()
    subsets = max(1, len(subsets_of(range(len(names)))))
    return _Cost(
        processor=training.processor
        - start.processor
        + subsets * (end.processor - training.processor),
        seconds=training.seconds - start.seconds + subsets * (end.seconds - training.seconds),
        taken=end.seconds - start.seconds,
        traffic=float(sum(trained.cost["bytes"][way] for way in ("up", "down"))),
        pool=sum(pools),
        aligned=aligned,
        stepwise=steps.heard or method.name != "proto_evfl",  # the others all train in epochs
    )


class _Clock:
    """Now, in processor time of all threads and in seconds."""

    def __init__(self) -> None:
        self.processor = time.process_time()
        self.seconds = time.perf_counter()


def _less(name: str, value: Any, shorter: int) -> Any:
    field = name.rpartition(".")[2]
    if field == "epochs_per_class":
        return value / shorter
    whole = field == "epochs" and isinstance(value, int)
    return max(1, round(value / shorter)) if whole and value else value


def _random(size: Size, party: int, pool: int, aligned: int, query: int) -> PartyTable:
    source = torch.Generator().manual_seed(party)

    def rows(n: int) -> torch.Tensor:
        x = torch.randn(n, *size.shape, generator=source)
        return x if len(size.shape) == 1 else (50 * x + 128).clamp(0, 255).to(torch.uint8)

    return PartyTable(
        f"party {party}", rows(pool), rows(aligned), rows(query), size.spans, size.numbers
    )
