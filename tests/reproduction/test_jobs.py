from typing import Any

import pytest

from protoevfl.bench.run import RunConfig
from protoevfl.reproduction.jobs import Job, attempt
from tests.reproduction import fake

FAKE = "tests.reproduction.fake:run"


def test_seeds_that_do_not_fit_together_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    calls = []

    def greedy(config: RunConfig, seeds: list[int], **rest: object) -> list[dict[str, Any]]:
        calls.append(list(seeds))
        if len(seeds) > 1:
            raise torch.OutOfMemoryError
        return [fake.record(config, seed) for seed in seeds]

    monkeypatch.setattr(fake, "run", greedy)
    made, error = attempt(Job(FAKE, RunConfig(), (0, 1)), "cpu", "auto")
    assert not error
    assert [r["seed"] for r in made] == [0, 1]
    assert calls == [[0, 1], [0], [1]]
    assert set(made[0]) >= {"commit", "machine"}


def test_what_a_user_can_mend_is_said_in_full_and_the_rest_with_its_place() -> None:
    assert attempt(Job("protoevfl.bench.run:run", RunConfig(method="nothing"), (0,)), "cpu", "loop") == (
        [],
        "unknown method 'nothing'; there are " + ", ".join(_methods()),
    )
    made, why = attempt(Job("protoevfl.bench.run:none", RunConfig(), (0,)), "cpu", "loop")
    assert made == []
    assert why.startswith("AttributeError: ")
    assert "jobs.py line" in why


def _methods() -> tuple[str, ...]:
    from protoevfl.methods import METHODS

    return tuple(METHODS)
