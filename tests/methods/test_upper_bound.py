"""Upper bound: everything in one place, nobody asked."""

import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.methods.upper_bound import UpperBound, whole
from tests.methods.play import accuracy, play, played, same_numbers
from tests.tiny import owner

TINY = {"epochs": 2, "models": 2, "batch": 32}


def test_engines_give_the_same_numbers() -> None:
    same_numbers("upper_bound", TINY)


def test_nothing_crosses_and_absence_changes_nothing() -> None:
    run = played("upper_bound", TINY)
    assert run.transcript == []
    for some, everyone in zip(run.predict((2,)), run.predict(), strict=True):
        torch.testing.assert_close(some, everyone)


def test_quadrants_are_put_together_again() -> None:
    from protoevfl.rows.dataset import quadrants

    image = torch.randint(0, 255, (3, 8, 8), dtype=torch.uint8)
    torch.testing.assert_close(whole(quadrants(image.numpy()))[:, 0], image)
    assert whole(torch.zeros(2, 12, 4, 4)).shape == (2, 12, 4, 4)
    assert whole(torch.zeros(2, 7)).shape == (2, 7)


def test_needs_a_simulation() -> None:
    with pytest.raises(UserError, match="only a simulation"):
        next(UpperBound().train(owner()))


def test_learns_more_than_the_aligned_rows_teach() -> None:
    run = play("upper_bound", {"epochs": 8, "models": 1, "batch": 32}, pool=100)
    assert accuracy(run) > 0.7
