"""Filling a records file: what is there is not run, a stop loses nothing, a failure stops nobody
else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protoevfl.bench import records
from protoevfl.bench.world import RunConfig
from protoevfl.observer import Observer
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.execute import Job, Timing, attempt, execute, merge, plan
from tests.reproduction import fake

FAKE = "tests.reproduction.fake:run"
SELECTION = replace(EXPERIMENTS["selection"], runner=FAKE)
ABLATION = replace(EXPERIMENTS["ablation"], runner=FAKE)


def test_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    jobs = plan([SELECTION], [0, 1], [])
    assert execute(jobs, file).done == len(SELECTION.cells)
    assert plan([SELECTION], [0, 1], records.read(file)) == []
    again = plan([SELECTION], [0, 1, 2], records.read(file))
    assert {job.seeds for job in again} == {(2,)}


def test_stop_in_the_middle_is_resumed(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"

    class Stop(Observer):
        def finished(self, text: str, done: int, total: int) -> None:
            if done == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(plan([SELECTION], [0, 1], []), file, observer=Stop())
    assert len(records.read(file)) == 6
    execute(plan([SELECTION], [0, 1], records.read(file)), file)
    keys = [records.key(r) for r in records.read(file)]
    assert len(keys) == len(set(keys)) == 2 * len(SELECTION.cells)


def test_shared_cells_are_run_once_and_important_ones_first() -> None:
    jobs = plan(list(EXPERIMENTS.values()), [0], [])
    names = [records.cell_key(job.config.identity()) for job in jobs]
    assert len(names) == len(set(names))
    assert [job.priority for job in jobs] == sorted(job.priority for job in jobs)


def test_shards_cover_everything_once() -> None:
    whole = plan([SELECTION, ABLATION], [0], [])
    parts = [plan([SELECTION, ABLATION], [0], [], shard=(k, 3)) for k in (1, 2, 3)]
    assert sorted(map(repr, whole)) == sorted(repr(job) for part in parts for job in part)


def test_a_failing_cell_is_named_and_stops_nobody(tmp_path: Path) -> None:
    good = Job(FAKE, RunConfig(), (0,))
    bad = Job("protoevfl.bench.run:run", RunConfig(method="nothing"), (0,), experiment="selection")
    broken = Job("tests.experiments.missing:run", RunConfig(), (0,))
    state = execute([bad, broken, good], tmp_path / "r.jsonl")
    assert state.done == 3
    assert "unknown method 'nothing'" in state.failures[bad.title]
    assert len(state.failures) == 2
    assert len(records.read(tmp_path / "r.jsonl")) == 1


def test_budget_starts_nothing_that_would_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    jobs = plan([SELECTION], [0, 1], [])
    assert execute(jobs, file, budget=0.0).left_out == len(jobs)
    # a record that says: a run of this method takes 100 s a seed
    first = fake.record(jobs[0].config, 9)
    records.append(file, {**first, "seconds": 100.0})
    assert execute(jobs, file, budget=150.0).left_out == len(jobs)
    assert execute(jobs, file, budget=1e6).left_out == 0


def test_time_is_learned_from_like_records() -> None:
    known = [
        {"dataset": "digits", "method": "vanilla", "seconds": 2.0},
        {"dataset": "x", "method": "y", "seconds": 8.0},
    ]
    timing = Timing(known)
    assert timing.expected(Job(FAKE, RunConfig(method="vanilla"), (0, 1, 2))) == 6.0
    assert timing.expected(Job(FAKE, RunConfig(method="local"), (0,))) == 5.0  # the mean of all
    assert Timing([]).expected(Job(FAKE, RunConfig(), (0,))) is None


def test_several_processes_give_the_same_records(tmp_path: Path) -> None:
    jobs = plan([EXPERIMENTS["imbalance"]], [0, 1], [], quick=True)
    execute(jobs, tmp_path / "one.jsonl")
    execute(jobs, tmp_path / "two.jsonl", workers=2)
    one, two = (
        sorted(records.read(tmp_path / n), key=records.key) for n in ("one.jsonl", "two.jsonl")
    )
    assert [r["split_hash"] for r in one] == [r["split_hash"] for r in two]


def test_a_dead_process_stops_nobody_else(tmp_path: Path) -> None:
    bad = Job("tests.reproduction.fake:dies", RunConfig(dataset="x"), (0,))
    good = [Job(FAKE, RunConfig(dataset=f"d{n}"), (0,)) for n in range(3)]
    state = execute([bad, *good], tmp_path / "r.jsonl", workers=2)
    assert state.done == 4
    assert "its process died" in state.failures[bad.title]
    there = {r["dataset"] for r in records.read(tmp_path / "r.jsonl")}
    # the one beside it may have died with it: it is named and run next time
    assert there >= {"d1", "d2"}
    assert len(there) + len(state.failures) == 4


def test_merge_adds_only_what_is_new(tmp_path: Path) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for seed in (0, 1):
        records.append(a, fake.record(RunConfig(), seed))
    for seed in (1, 2):
        records.append(b, fake.record(RunConfig(), seed))
    assert merge(a, [b]) == 1
    assert merge(a, [b]) == 0
    assert [r["seed"] for r in records.read(a)] == [0, 1, 2]


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
    assert attempt(
        Job("protoevfl.bench.run:run", RunConfig(method="nothing"), (0,)), "cpu", "loop"
    ) == (
        [],
        "unknown method 'nothing'; there are " + ", ".join(_methods()),
    )
    made, why = attempt(Job("protoevfl.bench.run:none", RunConfig(), (0,)), "cpu", "loop")
    assert made == []
    assert why.startswith("AttributeError: ")
    assert "execute.py line" in why


def _methods() -> tuple[str, ...]:
    from protoevfl.methods import METHODS

    return tuple(METHODS)
