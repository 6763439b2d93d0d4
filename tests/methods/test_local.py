"""Local: the active party alone."""

import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.methods.local import Local, rates
from tests.methods.play import accuracy, any_subset, play, played, same_numbers

TINY = {"epochs": 2, "models": 2}


def test_engines_give_the_same_numbers() -> None:
    same_numbers("local", TINY)


def test_nothing_crosses() -> None:
    run = played("local", TINY)
    assert run.crossed() == set()
    assert run.metered.ledger(0)["up"] == run.metered.ledger(0)["down"] == 0
    assert run.metered.rounds[0] == 0


def test_other_parties_change_nothing() -> None:
    run = played("local", TINY)
    for alone, together in zip(run.predict((0,)), run.predict((0, 1, 2, 3)), strict=True):
        torch.testing.assert_close(alone, together)


def test_without_its_own_columns_it_answers_with_the_rates_of_the_labels() -> None:
    run = played("local", TINY)
    for p, world in zip(run.predict((1, 3)), run.worlds, strict=True):
        torch.testing.assert_close(p, rates(world.owner).expand_as(p))
    any_subset("local", TINY)


def test_learns() -> None:
    assert accuracy(play("local", {"epochs": 25, "models": 1, "lr": 3e-3})) > 0.35


@pytest.mark.parametrize("model", ["network", "own_model"])
def test_with_all_labels_nobody_is_asked(model: str) -> None:
    run = play("local", TINY | {"model": model, "labelled.steps": 3, "own.steps": 3}, labels="all")
    assert run.transcript == []
    for world in run.worlds:
        assert world.owner.own is not None
        world.owner.own.query = world.owner.own.query[:60]
    for alone, together in zip(run.predict((0,)), run.predict(), strict=True):
        assert torch.equal(alone, together)
        torch.testing.assert_close(alone.sum(1), torch.ones(60))


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(UserError, match="network, own_model"):
        Local(model="forest")
