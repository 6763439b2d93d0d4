"""Local: the active party alone."""

import torch

from protoevfl.methods.local import rates
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
