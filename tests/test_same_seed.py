"""The same seed twice gives identical numbers, alone or beside others, whatever the global
generators do."""

from typing import Any

import pytest
import torch

from protoevfl.bench.run import run
from protoevfl.bench.world import RunConfig
from tests.tiny import short

METHODS = ("proto_evfl", "vanilla")


def measured(method: str, seeds: list[int], engine: str = "auto") -> list[dict[str, Any]]:
    config = RunConfig(method=method, aligned=60, pool=30, overrides=short(method))
    timeless = ("metrics", "bytes", "rounds", "split_hash", "history", "split")
    return [
        {name: record[name] for name in timeless}
        for record in run(config, seeds, device="cpu", engine=engine)
    ]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_twice_the_same(method: str, engine: str) -> None:
    torch.manual_seed(1)
    first = measured(method, [0, 1], engine)
    torch.manual_seed(2)
    assert measured(method, [0, 1], engine) == first
    assert first[0]["metrics"] != first[1]["metrics"]


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    measured("proto_evfl", [0])
    assert torch.equal(torch.get_rng_state(), before)
