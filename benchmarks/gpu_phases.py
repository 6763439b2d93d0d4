"""Where the seconds of a bench cell go: the calls of a cell in one process, the last one in pieces.

    python benchmarks/gpu_phases.py --datasets fashion_mnist modelnet10 --device cuda --kernels

Seconds of the pieces are read with the device caught up, so they add a little to the whole; `alone`
leaves out the pieces inside a piece. `--kernels` adds the GPU's busiest kernels of one short cell.
"""

import argparse
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from machine import table
from protoevfl import distributed
from protoevfl import fit as fitting
from protoevfl import head as heads
from protoevfl.bench import measure, world
from protoevfl.bench import run as bench
from protoevfl.bench.world import RunConfig
from protoevfl.core import metrics, ridge
from protoevfl.federation.federation import Federation
from protoevfl.federation.party import Cohort
from protoevfl.methods import answers, batch, deciding, prototype_rounds, rounds, warmup

SHORT = {"warm.epochs": 3, "rounds.count": 1, "head.epochs": 30}


class Clock:
    """Inclusive and exclusive seconds of named pieces, nested as they are called."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.clear()

    def clear(self) -> None:
        self.whole: dict[str, float] = defaultdict(float)
        self.alone: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self.inside: list[float] = []

    def now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def piece(self, name: str) -> Iterator[None]:
        start = self.now()
        self.inside.append(0.0)
        try:
            yield
        finally:
            seconds = self.now() - start
            self.whole[name] += seconds
            self.alone[name] += seconds - self.inside.pop()
            self.calls[name] += 1
            if self.inside:
                self.inside[-1] += seconds

    def watch(self, owner: Any, attribute: str, name: Callable[..., str] | None = None) -> None:
        """Every call of owner.attribute becomes a piece."""
        kind = vars(owner).get(attribute)
        work = getattr(owner, attribute)

        @functools.wraps(work)
        def timed(*args: Any, **options: Any) -> Any:
            with self.piece(name(*args, **options) if name else attribute):
                return work(*args, **options)

        setattr(owner, attribute, staticmethod(timed) if isinstance(kind, classmethod) else timed)

    def report(self) -> str:
        order = sorted(self.whole, key=self.whole.__getitem__, reverse=True)
        lines = [
            (name, self.calls[name], f"{self.whole[name]:.3f}", f"{self.alone[name]:.3f}")
            for name in order
        ]
        return table(["piece", "calls", "seconds", "alone"], lines)


def watch_all(clock: Clock) -> None:
    for module in (warmup, rounds, heads):
        clock.watch(module, "fit", lambda *_, **options: f"fit {options['purpose']}")
    for name in ("prepare", "simulate", "measured"):
        clock.watch(bench, name)
    for name in ("evaluate", "_pseudo_labels", "_joining", "_gate_by_class"):
        clock.watch(measure, name)
    clock.watch(measure, "_probability_figures")
    for name in ("party_tables", "split_dataset"):
        clock.watch(world, name)
    clock.watch(metrics, "evaluate", lambda *_, **__: "metrics.evaluate")
    clock.watch(Federation, "train")
    clock.watch(Federation, "predict")
    clock.watch(Cohort, "handle_all", lambda _, asked: f"answer {type(asked[0]).__name__}")
    clock.watch(distributed, "moments")
    for module in (answers, rounds):
        clock.watch(module, "embed")
    for name in ("guard", "held_out"):
        clock.watch(prototype_rounds, name)
    clock.watch(deciding, "decide")
    clock.watch(rounds, "local_prior")
    clock.watch(batch, "space")
    clock.watch(deciding, "predict_batch")
    for name in ("fit", "predict", "as_sure", "sureness", "spread"):
        clock.watch(ridge, name, lambda *_, name=name, **__: f"ridge.{name}")
    clock.watch(heads.HeadTask, "together", lambda *_: "heads together")
    plain = fitting._Stepper.__call__

    def step(self: fitting._Stepper) -> None:
        """The steps before the graph and its capture are pieces, the replays are not."""
        if self.done > fitting.EAGER_STEPS:
            plain(self)
            return
        with clock.piece("capture" if self.done == fitting.EAGER_STEPS else "eager steps"):
            plain(self)

    fitting._Stepper.__call__ = step  # type: ignore[method-assign]


def kernels(dataset: str, seeds: range, device: str) -> None:
    """The busiest kernels of each kind of training, of a short cell."""
    config = RunConfig(dataset=dataset, overrides=SHORT)
    bench.run(config, seeds, device=device)
    for module in (warmup, rounds, heads):
        work = module.fit

        def profiled(*args: Any, work: Any = work, **options: Any) -> Any:
            with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
                start = time.perf_counter()
                answer = work(*args, **options)
                torch.cuda.synchronize()
                seconds = time.perf_counter() - start
            events = [e for e in seen.key_averages() if e.self_device_time_total > 0]
            busy = sum(e.self_device_time_total for e in events) / 1e6
            print(f"\n{dataset} {options['purpose']}: {seconds:.2f} s, GPU busy {busy:.2f} s")
            top = sorted(events, key=lambda e: e.self_device_time_total, reverse=True)[:22]
            for e in top:
                print(f"{e.self_device_time_total / 1e3:9.2f} ms {e.count:6d}  {e.key[:110]}")
            return answer

        module.fit = profiled
    bench.run(config, seeds, device=device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=["digits"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2)
    parser.add_argument("--pieces", action="store_true", help="a further call in pieces")
    parser.add_argument(
        "--kernels", action="store_true", help="the busiest kernels of each training"
    )
    asked = parser.parse_args()
    seeds = range(asked.seeds)
    for dataset in asked.datasets:
        for call in range(asked.calls):
            start = time.perf_counter()
            rows = bench.run(RunConfig(dataset=dataset), seeds, device=asked.device)
            seconds = time.perf_counter() - start
            accuracy = [100 * row["metrics"]["accuracy"] for row in rows]
            phases = {name: round(value, 2) for name, value in rows[0]["phases"].items()}
            print(
                f"{dataset} call {call + 1}: {seconds:.2f} s {phases} accuracy "
                f"{sum(accuracy) / len(accuracy):.2f} ({' '.join(f'{a:.2f}' for a in accuracy)})",
                flush=True,
            )
    if asked.pieces:
        clock = Clock(asked.device)
        watch_all(clock)
        for dataset in asked.datasets:
            clock.clear()
            with clock.piece("all"):
                bench.run(RunConfig(dataset=dataset), seeds, device=asked.device)
            print(f"\n## {dataset}\n\n{clock.report()}", flush=True)
    if asked.kernels:
        for dataset in asked.datasets:
            kernels(dataset, seeds, asked.device)


if __name__ == "__main__":
    main()
