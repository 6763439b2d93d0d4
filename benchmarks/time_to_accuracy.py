"""(d) Each method's time to its final accuracy: a whole run with its default preset, data in memory
to metrics."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from machine import Line, table
from protoevfl.bench.run import run
from protoevfl.bench.world import RunConfig
from protoevfl.methods import METHODS


def measure(
    dataset: str,
    device: str,
    methods: Sequence[str] = tuple(METHODS),
    overrides: Mapping[str, Any] | None = None,
) -> Iterator[Line]:
    """One line a method."""
    for name in methods:
        config = RunConfig(dataset=dataset, method=name, aligned=200, overrides=overrides or {})
        record = run(config, [0], device=device)[0]
        yield {
            "bench": "time_to_accuracy",
            "dataset": dataset,
            "method": name,
            "seconds": record["seconds"],
            "phases": record["phases"],
            "accuracy": record["metrics"]["accuracy"],
            "engine": record["engine"],
            "bytes": record["bytes"]["up"] + record["bytes"]["down"],
        }


def render(lines: Sequence[Line]) -> str:
    cells = [
        [
            x["method"],
            f"{x['seconds']:.1f}",
            f"{100 * x['accuracy']:.1f}",
            f"{x['bytes'] / 1e6:.2f}",
        ]
        for x in sorted(lines, key=lambda x: x["seconds"])
    ]
    return table(["method", "seconds", "accuracy, %", "MB both ways"], cells)
