"""The search: folds of aligned rows, the same number of trials for each method, the best one
wins."""

import pytest
import torch

from protoevfl.bench import tune
from protoevfl.bench.world import RunConfig, prepare
from protoevfl.errors import UserError
from protoevfl.methods import METHODS
from protoevfl.observer import Observer
from protoevfl.settings.presets import build

CELL = RunConfig("digits", "upper_bound", aligned=40, pool=30)


def test_every_method_has_a_space_and_every_candidate_can_be_built() -> None:
    assert set(tune.SPACES) == set(METHODS)
    for method in METHODS:
        for dataset in ("digits", "adult"):
            found = tune.candidates(method, dataset, 6)
            assert len(found) == 6
            assert found[0] == {}
            assert all(a != b for i, a in enumerate(found) for b in found[:i])
            for overrides in found:
                build(method, "default", dataset, overrides)


def test_folds_partition_the_aligned_rows_and_hide_them() -> None:
    whole, folds = prepare(CELL, 100, "cpu"), tune._fold_worlds(CELL, 100, "cpu", 4)
    assert sum(len(w.labels.query) for w in folds) == 40
    held = torch.cat([w.tables[2].query for w in folds]).flatten(1)
    everything = whole.tables[2].aligned.flatten(1)
    assert sorted(map(tuple, held.tolist())) == sorted(map(tuple, everything.tolist()))
    for world in folds:
        assert (
            len(world.owner.labels) == len(world.tables[0].aligned) == 40 - len(world.labels.query)
        )
        assert torch.bincount(world.labels.query, minlength=10).tolist() == [1] * 10
        assert world.owner.central is not None
        assert len(world.owner.central.pool) == 40 + 4 * 30 - 10
        assert len(world.owner.central.query) == 10
        torch.testing.assert_close(world.tables[1].pool, whole.tables[1].pool)
    assert folds[0].owner.memory is not folds[1].owner.memory


def test_the_best_trial_wins() -> None:
    seen: list[str] = []

    class Heard(Observer):
        def finished(self, text: str, done: int, total: int) -> None:
            seen.append(text)

    found = tune.tune(
        "vanilla", "digits", 2, [100], "cpu", aligned=20, pool=20, folds=2, observer=Heard()
    )
    assert seen == [trial.line(n) for n, trial in enumerate(found.trials, start=1)]
    assert found.best.score == max(t.score for t in found.trials)
    assert found.as_json()["best"]["score"] == found.best.score
    assert len(found.best.folds) == 2


def test_every_label_is_searched_where_it_is_used_and_folds_hide_it() -> None:
    drawn = tune.candidates("laser", "digits", 3, "all")
    assert all(set(settings) <= {"own_batches", "lr"} for settings in drawn)
    cell = RunConfig("digits", "vanilla", aligned=40, pool=30, labels="all")
    for world in tune._fold_worlds(cell, 100, "cpu", 4):
        own = world.owner.own
        assert own is not None
        torch.testing.assert_close(own.query, world.tables[0].query)
        torch.testing.assert_close(
            own.rows, torch.cat([world.tables[0].aligned, world.tables[0].pool])
        )
        assert own.shared_rows == len(world.owner.labels)
        assert torch.equal(own.labels[: own.shared_rows], world.owner.labels)


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="at least one trial"):
        tune.tune("vanilla", "digits", 0)
    with pytest.raises(UserError, match="search space"):
        tune.candidates("nonsense", "digits", 1)
