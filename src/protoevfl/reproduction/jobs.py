"""One job: a configuration and the seeds of it that are missing, run by the experiment's runner."""

import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from protoevfl.bench.records import stamp
from protoevfl.bench.run import RunConfig
from protoevfl.errors import UserError
from protoevfl.reproduction.grid import QUICK
from protoevfl.reproduction.spec import RUN, Runner


@dataclass(frozen=True)
class Job:
    runner: str  # "module:function"
    config: RunConfig
    seeds: tuple[int, ...]
    priority: int = 0
    experiment: str = ""

    @property
    def title(self) -> str:
        c = self.config
        parts = [self.experiment, c.dataset, c.method, c.preset if c.preset != "default" else "", f"#{c.aligned}",
                 c.setting if c.setting != "normal" else "", " ".join(map(str, c.classes)),
                 f"{c.parties} parties" if c.parties != 4 else "",
                 *(f"{k}={v}" for k, v in c.overrides.items() if QUICK.get(c.method, {}).get(k) != v)]  # fmt: skip
        return " ".join(part for part in parts if part)


def resolve(runner: str) -> Runner:
    module, _, name = runner.partition(":")
    function: Runner = getattr(import_module(module), name)
    return function


def attempt(job: Job, device: str, engine: str, watch: Any = None) -> tuple[list[dict[str, Any]], str]:
    """The records of a job, or none and why. Seeds that do not fit into memory together are run one by one."""
    import torch

    try:
        try:
            records = _call(job, job.seeds, device, engine, watch)
        except torch.OutOfMemoryError:
            if len(job.seeds) == 1:
                raise
            torch.cuda.empty_cache()
            records = [record for seed in job.seeds for record in _call(job, (seed,), device, engine, watch)]
        return [{**record, **stamp()} for record in records], ""
    except UserError as error:
        return [], str(error)
    except Exception as error:  # a cell that fails must not take the others with it
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return [], f"{type(error).__name__}: {error} ({Path(frame.filename).name} line {frame.lineno})"


def _call(job: Job, seeds: tuple[int, ...], device: str, engine: str, watch: Any) -> list[dict[str, Any]]:
    more = {"watch": watch} if watch is not None and job.runner == RUN else {}
    return resolve(job.runner)(job.config, list(seeds), device=device, engine=engine, **more)
