"""Work side by side on a CPU: pieces that do not touch each other, each on a thread and share of
the cores of its own.

Splitting the members of a batched model into two halves uses two cores better than splitting every
operation: an operation on a few thousand numbers is too short to be shared, and the cores wait for
each other after each one (docs/performance.md). Torch lets go of Python's lock while it computes.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

import torch

from protoevfl import distributed
from protoevfl.federation.party import Cohort, Progress

MOST = 2  # lanes; measured on two cores only
T = TypeVar("T")
R = TypeVar("R")


def lanes_for(device: torch.device) -> int:
    """How many lanes pay: one on a GPU, with a single thread, and where processes must stay in step
    (torchrun)."""
    return (
        min(MOST, torch.get_num_threads())
        if device.type == "cpu" and distributed.count() == 1
        else 1
    )


def parts(items: Sequence[T], count: int) -> list[list[T]]:
    """At most `count` parts of nearly equal size, in order.

    >>> parts("abcde", 2), parts("a", 2)
    ([['a', 'b'], ['c', 'd', 'e']], [['a']])
    """
    count = min(count, len(items))
    edges = [len(items) * i // count for i in range(count + 1)]
    return [list(items[a:b]) for a, b in zip(edges, edges[1:], strict=False)]


class Lanes:
    """A few threads that share the cores."""

    def __init__(self, count: int) -> None:
        cores = max(1, torch.get_num_threads() // count)
        self.pool = ThreadPoolExecutor(
            count, "lane", initializer=torch.set_num_threads, initargs=(cores,)
        )

    def each(
        self, work: Callable[[T], R], items: Sequence[T], cohorts: Iterable[Cohort]
    ) -> list[R]:
        """`work` of every item, in order. Ctrl-C stops the others at their next report of
        progress."""
        stop, grads, before = (
            Event(),
            torch.is_grad_enabled(),
            [(cohort, cohort.progress) for cohort in cohorts],
        )

        def one(item: T) -> R:
            with torch.set_grad_enabled(grads):  # a thread has its own
                return work(item)

        for cohort, progress in before:
            cohort.progress = _until(stop, progress)
        waiting = [self.pool.submit(one, item) for item in items]
        try:
            wait(waiting, return_when=FIRST_EXCEPTION)
            failed = [future for future in waiting if future.done() and future.exception()]
            return [future.result() for future in failed or waiting]
        finally:
            stop.set()
            for future in waiting:
                future.cancel()
            wait(waiting)
            for cohort, progress in before:
                cohort.progress = progress


def _until(stop: Event, progress: Progress) -> Progress:
    def told(phase: str, step: int, steps: int) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        progress(phase, step, steps)

    return told
