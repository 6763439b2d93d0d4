"""Plausible records without compute: a method has a level, a seed a little noise, split learning
costs bytes."""

import os
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from protoevfl.bench.world import RunConfig
from protoevfl.reproduction.spec import Cell

LEVEL = {
    "proto_evfl": 0.78,
    "vanilla": 0.74,
    "fedhssl": 0.76,
    "ss_vfl_c": 0.76,
    "local": 0.62,
    "upper_bound": 0.86,
}


def record(config: RunConfig, seed: int) -> dict[str, Any]:
    identity = config.identity()
    rng = np.random.default_rng([seed, zlib.crc32(repr(sorted(identity.items())).encode())])
    z = 2 if config.dataset in ("adult", "credit") else 10
    level = LEVEL.get(config.method, 0.7) * (0.2 if config.preset == "paper" else 1.0)
    accuracy = float(
        np.clip(
            level + 0.03 * np.log10(config.aligned / 200 + 1e-9) + rng.normal(0, 0.005), 0.05, 0.99
        )
    )
    recall = np.clip(accuracy + rng.normal(0, 0.08, z), 0, 1)
    unseen = list(config.classes) if config.setting == "zero_shot" else []
    if unseen and config.method != "proto_evfl":
        recall[unseen] = 0.0
    steps = int(config.overrides.get("rounds.count", config.overrides.get("epochs", 10)))
    gradient = config.method in ("vanilla", "ss_vfl_c", "fedhssl")
    up, down = (20_000 * (steps + 1), 20_000 * steps if gradient else 300 * steps)
    counts = rng.integers(20, 200, (config.parties, z))
    prior = rng.dirichlet(np.full(z, 5.0), config.parties)
    confusion = np.diag(recall) + (1 - recall)[:, None] / z
    return {
        **identity,
        "seed": seed,
        "metrics": {
            "accuracy": accuracy,
            "balanced_accuracy": float(recall.mean()),
            "macro_f1": accuracy,
            "auc": accuracy if z == 2 else None,
            "seen_accuracy": accuracy,
            "unseen_recall": float(recall[unseen].mean()) if unseen else None,
            "harmonic_mean": accuracy if unseen else None,
            "rare_recall": float(recall[list(config.classes)].mean())
            if config.setting == "few_shot"
            else None,
            "per_class_recall": recall.tolist(),
            "classes_predicted": z,
            "confusion": (100 * confusion).round().tolist(),
            "gate": rng.dirichlet(np.ones(config.parties), z).T.tolist(),
            "priors": {"estimated": prior.tolist()},
        },
        "attack": {"accuracy": 0.4, "advantage": 0.1, "canary": 0.12, "nearest_prototype": 0.3},
        "bytes": {
            "up": up,
            "down": down,
            "by_type": {
                "Embeddings": {"up": up, "down": 0},
                "BackwardBatch" if gradient else "Learn": {"up": 0, "down": down},
            },
            "by_party": {"1": {"up": up, "down": down}},
        },
        "rounds": 8 * steps + 1 if gradient else steps + 1,
        "seconds": 2.0 + rng.random(),
        "phases": {"warm-up": 1.0},
        "lockstep_seeds": 5,
        "engine": "stacked",
        "device": "cpu x1",
        "peak_memory_mb": 500.0,
        "split_hash": "0" * 64,
        "split": {
            "seed": seed,
            "aligned_counts": [config.aligned // z] * z,
            "pool_counts": counts.tolist(),
            "test_rows": 1000,
            "gamma": [12.0] * config.parties,
            "mid": [0.2] * config.parties,
            "wcs": [0.85] * config.parties,
            "notes": [],
        },
        "history": [
            {"phase": "rounds", "step": t, "loss": 2.0 / t**0.5, "gradient_norm": t**-0.25}
            for t in range(1, steps + 1)
        ],
        "versions": {"protoevfl": "0.1.0"},
        "commit": "abc",
        "machine": "a machine",
    }


def run(
    config: RunConfig, seeds: Sequence[int], *, device: str = "", engine: str = ""
) -> list[dict[str, Any]]:
    """A runner."""
    return [record(config, seed) for seed in seeds]


def dies(
    config: RunConfig, seeds: Sequence[int], *, device: str = "", engine: str = ""
) -> list[dict[str, Any]]:
    """A runner whose process ends, as for want of memory."""
    os._exit(9)


def records(cells: Iterable[Cell], seeds: Sequence[int] = (0, 1)) -> list[dict[str, Any]]:
    return [record(cell.config, seed) for cell in cells for seed in seeds]
