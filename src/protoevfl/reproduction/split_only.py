"""A runner that trains nothing: its records hold the split, for the table of class imbalance."""

from collections.abc import Sequence
from typing import Any

from protoevfl.bench.run import RunConfig, versions
from protoevfl.rows import sources
from protoevfl.rows.splits import split_dataset


def run(
    config: RunConfig, seeds: Sequence[int], *, device: str = "cpu", engine: str = ""
) -> list[dict[str, Any]]:
    """One record per seed with the split alone."""
    dataset = sources.load(config.dataset)
    splits = [split_dataset(dataset, config.split_spec(), seed) for seed in seeds]
    return [
        {
            **config.identity(),
            "seed": seed,
            "metrics": {},
            "seconds": 0.0,
            "split_hash": split.hash,
            "split": split.as_json(),
            "versions": versions(),
        }
        for seed, split in zip(seeds, splits, strict=True)
    ]
