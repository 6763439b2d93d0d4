"""Fills a records file: what is missing is run, the most important cells first, seeds of a cell in
one call.

It can be stopped at any moment and started again, with other seeds, on several machines (`shard`,
`merge`), with a budget of seconds: a job is only started when it is expected to fit, judged by the
records of its like. A job that fails is named at the end and does not stop the others.
"""

import math
import os
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from protoevfl.bench import records
from protoevfl.bench.world import RunConfig
from protoevfl.errors import UserError
from protoevfl.observer import SILENT, Observer
from protoevfl.progress import duration
from protoevfl.reproduction.grid import QUICK
from protoevfl.reproduction.spec import RUN, Experiment, Record, Runner


@dataclass(frozen=True)
class Job:
    """A configuration and the seeds of it that are missing, run by the experiment's runner."""

    runner: str  # "module:function"
    config: RunConfig
    seeds: tuple[int, ...]
    priority: int = 0
    experiment: str = ""

    @property
    def title(self) -> str:
        c = self.config
        parts = [
            self.experiment,
            c.dataset,
            c.method,
            c.preset if c.preset != "default" else "",
            f"#{c.aligned}",
            c.setting if c.setting != "normal" else "",
            " ".join(map(str, c.classes)),
            f"{c.parties} parties" if c.parties != 4 else "",
            "all labels" if c.labels == "all" else "",
            f"overlap {c.overlap}" if c.overlap else "",
            *(f"{k}={v}" for k, v in c.overrides.items() if QUICK.get(c.method, {}).get(k) != v),
        ]
        return " ".join(part for part in parts if part)


def attempt(
    job: Job, device: str, engine: str, observer: Observer = SILENT
) -> tuple[list[dict[str, Any]], str]:
    """The records of a job, or none and why. Seeds that do not fit into memory together are run one
    by one."""
    import torch

    try:
        try:
            new = _call(job, job.seeds, device, engine, observer)
        except torch.OutOfMemoryError:
            if len(job.seeds) == 1:
                raise
            torch.cuda.empty_cache()
            new = [
                record
                for seed in job.seeds
                for record in _call(job, (seed,), device, engine, observer)
            ]
        return [{**record, **records.stamp()} for record in new], ""
    except UserError as error:
        return [], str(error)
    except Exception as error:  # a cell that fails must not take the others with it
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return (
            [],
            f"{type(error).__name__}: {error} ({Path(frame.filename).name} line {frame.lineno})",
        )


def _call(
    job: Job, seeds: tuple[int, ...], device: str, engine: str, observer: Observer
) -> list[dict[str, Any]]:
    more = {"observer": observer} if job.runner == RUN else {}
    module, _, name = job.runner.partition(":")
    runner: Runner = getattr(import_module(module), name)
    return runner(job.config, list(seeds), device=device, engine=engine, **more)


@dataclass
class Outcome:
    """What became of many jobs."""

    done: int = 0
    failures: dict[str, str] = field(default_factory=dict)  # {title of the job: why}
    left_out: int = 0  # not started: the budget was spent


class Timing:
    """Expected seconds of a job: the mean of records of the same data set and method, else of all,
    times its seeds."""

    def __init__(self, done: Iterable[Record]) -> None:
        self.known: dict[tuple[str, ...], list[float]] = {}
        for record in done:
            self.learn(
                str(record.get("dataset")), str(record.get("method")), record.get("seconds") or 0.0
            )

    def learn(self, dataset: str, method: str, seconds: float) -> None:
        for name in ((dataset, method), ()):
            self.known.setdefault(name, []).append(seconds)

    def expected(self, job: Job) -> float | None:
        known = self.known.get((job.config.dataset, job.config.method)) or self.known.get(())
        return len(job.seeds) * sum(known) / len(known) if known else None

    def total(self, jobs: Sequence[Job], workers: int) -> float | None:
        each = [self.expected(job) for job in jobs]
        return None if None in each else sum(e for e in each if e is not None) / workers


def plan(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    done: Iterable[Record],
    *,
    quick: bool = False,
    shard: tuple[int, int] = (1, 1),
) -> list[Job]:
    """The jobs that are missing, each configuration once, by priority; `shard` (k, n) takes every
    n-th from k on."""
    recorded = {records.key(record) for record in done}
    jobs: dict[str, Job] = {}
    for experiment in experiments:
        for cell in experiment.chosen(quick):
            identity = cell.config.identity()
            name = records.cell_key(identity)
            missing = tuple(
                s for s in seeds if records.key({**identity, "seed": s}) not in recorded
            )
            if missing and (name not in jobs or cell.priority < jobs[name].priority):
                jobs[name] = Job(
                    experiment.runner, cell.config, missing, cell.priority, experiment.name
                )
    ordered = sorted(jobs.values(), key=lambda job: job.priority)
    return ordered[shard[0] - 1 :: shard[1]]


def execute(
    jobs: Sequence[Job],
    path: Path,
    *,
    device: str = "auto",
    engine: str = "auto",
    budget: float | None = None,
    workers: int = 1,
    observer: Observer = SILENT,
) -> Outcome:
    """Runs the jobs and appends their records as they come."""
    outcome = Outcome()
    timing = Timing(records.read(path))
    start = time.monotonic()
    waiting = list(jobs)

    def following() -> Iterator[Job]:
        while waiting:
            left = math.inf if budget is None else budget - (time.monotonic() - start)
            fits = (j for j in waiting if left > 0 and (timing.expected(j) or 0.0) <= left)
            job = next(fits, None)
            if job is None:
                outcome.left_out = len(waiting)
                return
            waiting.remove(job)
            yield job

    ways = _here if workers == 1 else _processes
    for job, new, error in ways(following(), device, engine, workers, observer):
        for record in new:
            records.append(path, {**record, "workers": workers})
            timing.learn(job.config.dataset, job.config.method, record.get("seconds") or 0.0)
        if error:
            outcome.failures[job.title] = error
        outcome.done += 1
        seconds = timing.total(waiting, workers)
        left = "" if seconds is None else f", about {duration(seconds)} left"
        line = f"{outcome.done}/{len(jobs)} {job.title}{left}"
        observer.finished(line, outcome.done, len(jobs))
    return outcome


Result = tuple[Job, list[dict[str, Any]], str]


def _here(
    jobs: Iterator[Job], device: str, engine: str, workers: int, observer: Observer
) -> Iterator[Result]:
    for job in jobs:
        yield job, *attempt(job, device, engine, observer)


def _processes(
    jobs: Iterator[Job], device: str, engine: str, workers: int, observer: Observer
) -> Iterator[Result]:
    """Several jobs at once in processes of their own; this process alone writes. When one dies (no
    memory), the jobs of its pool are named and the rest goes on in a new pool."""
    running: dict[Future[Any], Job] = {}
    pool, more = _pool(workers), True
    try:
        while more or running:
            while more and len(running) < workers:
                job = next(jobs, None)
                more = job is not None
                if job is None:
                    break
                try:
                    future = pool.submit(attempt, job, device, engine)
                except BrokenExecutor:
                    pool = _pool(workers)
                    future = pool.submit(attempt, job, device, engine)
                running[future] = job
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, error = running.pop(future), future.exception()
                yield job, *(([], f"its process died: {error}") if error else future.result())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _pool(workers: int) -> ProcessPoolExecutor:
    from multiprocessing import get_context

    share = max(1, (os.cpu_count() or 1) // workers)
    return ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=_use_threads, initargs=(share,)
    )


def _use_threads(count: int) -> None:
    """Processes that all start as many threads as there are cores would wait for each other."""
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(count)


def merge(path: Path, others: Iterable[Path]) -> int:
    """Adds the records of other files that are not there yet; returns how many."""
    recorded = {records.key(record) for record in records.read(path)}
    added = 0
    for other in others:
        for record in records.read(other):
            if records.key(record) not in recorded:
                records.append(path, record)
                recorded.add(records.key(record))
                added += 1
    return added
