"""Levels of columns: few numbers, rounded, from own rows alone; what there is not is refused."""

import pytest
import torch
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.privacy.levels import LEVELS, MEASURED, STEP, check_level, few_numbers, learn_few


def rows(seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, 300, 5, generator=draw) * torch.tensor([5.0, 2.0, 1.0, 0.5, 0.1])


def test_numbers_are_few_rounded_and_the_first_has_spread_one() -> None:
    x = rows()
    sent = few_numbers(x, *learn_few(x, 2).values())
    assert sent.shape == (2, 300, 2)
    assert torch.equal(sent, (sent / STEP).round() * STEP)
    assert sent[..., 0].std(1).tolist() == pytest.approx([1.0, 1.0], abs=0.1)
    assert (sent[..., 1].std(1) < sent[..., 0].std(1)).all()


def test_asking_again_tells_nothing_new_and_each_member_has_its_own_components() -> None:
    x = rows()
    learnt = learn_few(x, 2)
    again = learn_few(x, 2)
    assert all(torch.equal(learnt[name], again[name]) for name in learnt)
    alone = learn_few(x[1:], 2)
    assert torch.allclose(alone["few.basis"][0], learnt["few.basis"][1])


def test_more_numbers_than_columns_are_all_there_are() -> None:
    x = rows()
    assert few_numbers(x, *learn_few(x, 64).values()).shape == (2, 300, 5)


def test_a_level_that_there_is_not_is_refused_in_one_line() -> None:
    for level in MEASURED:
        check_level(level)
    assert set(MEASURED) < set(LEVELS)
    with pytest.raises(UserError, match="unknown level of columns 'fw'; there are open, few"):
        check_level("fw")
