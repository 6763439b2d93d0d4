"""The three-company example with a method that trains in a second."""

from dataclasses import replace
from pathlib import Path

from protoevfl.rows.example import write_example
from protoevfl.settings.config import Config, load

FAST = {"warm.epochs": 3, "head.epochs": 10}


def small_example(folder: Path, rows: int = 1200, **changes: object) -> Config:
    """A configuration with files of `rows` customers."""
    return fast(load(write_example(folder, rows=rows)), **changes)


def fast(config: Config, **changes: object) -> Config:
    method = replace(config.method, overrides={**FAST, **config.method.overrides})
    return replace(config, method=method, device="cpu", **changes)  # type: ignore[arg-type]
