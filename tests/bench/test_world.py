"""A cell of an experiment: its split, its pools, and what it refuses."""

import json

from protoevfl.bench.world import RunConfig
from protoevfl.rows.splits import SplitSpec


def test_a_configuration_says_its_split() -> None:
    config = RunConfig(
        dataset="digits", aligned=50, setting="few_shot", classes=(1, 2), shots=3, parties=2
    )
    expected = SplitSpec(
        dataset="digits", parties=2, aligned=50, setting="few_shot", classes=(1, 2), shots=3
    )
    assert config.split_spec() == expected
    assert json.loads(json.dumps(config.identity()))["classes"] == [1, 2]
