"""From a configuration to records: build the parties, drive the method, evaluate. Several seeds go
in lockstep."""

import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

import protoevfl
from protoevfl import distributed
from protoevfl.bench.measure import measured
from protoevfl.bench.world import RunConfig, World, prepare
from protoevfl.distributed import choose_device
from protoevfl.federation.federation import Federation, choose_engine, simulate
from protoevfl.method import Report, plain_figures
from protoevfl.observer import SILENT, Observer, Together
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.settings.method_choice import privacy_of
from protoevfl.settings.presets import build

# further figures of a trained run: its federation, its world, its number
Measure = Callable[[Federation, World, int], dict[str, Any]]


def run(
    config: RunConfig,
    seeds: Sequence[int],
    *,
    device: str = "auto",
    engine: str = "auto",
    subsets: bool = False,
    observer: Observer = SILENT,
    also: Measure | None = None,
) -> list[dict[str, Any]]:
    """Runs a cell for several seeds in lockstep; one record per seed.

    engine     "auto", "loop" or "stacked" (federation/federation.py)
    subsets    also measure every subset of parties
    also       further figures of each trained run, for a benchmark of its own
    """
    if not seeds:
        return []
    device = choose_device(device)
    engine = choose_engine(engine)
    distributed.join(device)
    method = build(config.method, config.preset, config.dataset, config.overrides)
    privacy = privacy_of(config.method, config.preset, config.dataset, config.overrides)
    worlds = [prepare(config, seed, device) for seed in seeds]
    federation = simulate(
        method,
        [world.simulated for world in worlds],
        privacy,
        engine=engine,
        device=device,
        observer=observer,
    )
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    history = _History(len(seeds), device)
    federation.train(Together([history, observer]))
    traffic = [federation.traffic(r) for r in range(len(seeds))]  # before predictions add to it
    history.mark("end")
    metrics_of = measured(config, federation, worlds, subsets)
    history.mark("predict")
    if also is not None:
        for r, world in enumerate(worlds):
            metrics_of[r] |= also(federation, world, r)
    hardware = {
        "seconds": history.total / len(seeds),
        "phases": history.phases,
        "lockstep_seeds": len(seeds),
        "engine": engine,
        "device": _device_name(device),
        "peak_memory_mb": _peak_memory_mb(device),
    }
    described = {
        "settings": asdict(method),  # type: ignore[call-overload]
        "privacy": defences(privacy),
        "versions": versions(),
    }
    return [
        {
            **config.identity(),
            "seed": seed,
            "metrics": metrics_of[r],
            **traffic[r],
            **hardware,
            "split_hash": worlds[r].split.hash,
            "split": worlds[r].split.as_json(),
            "history": history.figures[r],
            **described,
        }
        for r, seed in enumerate(seeds)
    ]


class _History(Observer):
    """The figures of each run's reports, and seconds by phase with the device caught up before each
    reading."""

    def __init__(self, runs: int, device: str) -> None:
        self.device = device
        self.figures: list[list[dict[str, Any]]] = [[] for _ in range(runs)]
        self.phases: dict[str, float] = {}
        self.start = self.last = self._now()

    def report(self, report: Report, run: int = 0) -> None:
        if report.values:
            place = {"phase": report.phase, "step": report.step}
            self.figures[run].append({**place, **plain_figures(report)})
        self.mark(report.phase)

    def mark(self, phase: str) -> None:
        now = self._now()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self.last
        self.last = now

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    @property
    def total(self) -> float:
        return self.last - self.start


def defences(privacy: PrivacySettings) -> dict[str, Any]:
    """What is on, and what was turned off: enough to have the settings back."""
    unset = asdict(PrivacySettings())
    return {n: v for n, v in asdict(privacy).items() if v or v != unset[n]}


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"cpu x{torch.get_num_threads()}"


def _peak_memory_mb(device: str) -> float:
    """Peak GPU memory on a GPU, else peak resident memory of this process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def versions() -> dict[str, str]:
    return {
        "protoevfl": protoevfl.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
