"""Pooled boosting: what lossless federated boosting would give; aligned rows only, nobody asked."""

import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.methods.pooled_boosting import PooledBoosting
from tests.methods.play import accuracy, play, played
from tests.tiny import owner

TINY = {"max_iter": 5, "min_samples_leaf": 3}


def test_nothing_crosses_and_absence_changes_nothing() -> None:
    run = played("pooled_boosting", TINY)
    assert run.transcript == []
    for some, everyone in zip(run.predict((2,)), run.predict(), strict=True):
        assert torch.equal(some, everyone)


def test_it_is_scikit_learns_model_of_the_aligned_rows() -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    run = played("pooled_boosting", TINY)
    world = run.worlds[0]
    data = world.owner.central
    assert data is not None
    known = len(world.owner.labels)
    model = HistGradientBoostingClassifier(early_stopping=False, random_state=0, **TINY)
    model.fit(data.pool[:known].flatten(1).float() / 255, world.owner.labels)
    theirs = torch.from_numpy(model.predict_proba(data.query.flatten(1).float() / 255)).float()
    torch.testing.assert_close(run.predict()[0], theirs, atol=1e-4, rtol=0)


def test_needs_a_simulation() -> None:
    with pytest.raises(UserError, match="only a simulation"):
        next(PooledBoosting().train(owner()))


def test_learns() -> None:
    assert accuracy(play("pooled_boosting", {"max_iter": 20, "min_samples_leaf": 3})) > 0.35
