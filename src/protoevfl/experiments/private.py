"""The runner of the noise tables, on top of `protoevfl.audit`: runs behind the guards of the privacy settings."""

import time
from collections.abc import Sequence
from typing import Any

from protoevfl.run import RunConfig, versions


def run(config: RunConfig, seeds: Sequence[int], *, device: str = "auto", engine: str = "auto") -> list[dict[str, Any]]:
    """Records of a run whose overrides name defences ("privacy.clip", "privacy.embedding_noise", ...)."""
    from protoevfl.audit.record import privacy_of, record

    start = time.perf_counter()
    made = record(config, list(seeds), device=device)
    seconds = (time.perf_counter() - start) / len(made)
    _, privacy = privacy_of(config)
    return [
        {
            **config.identity(), "seed": one.seed, "metrics": one.metrics, "bytes": one.crossed, "seconds": seconds,
            "split_hash": one.world.split.hash, "split": one.world.split.as_json(), "versions": versions(),
            "privacy": {name: value for name, value in vars(privacy).items() if value},
        }
        for one in made
    ]  # fmt: skip
