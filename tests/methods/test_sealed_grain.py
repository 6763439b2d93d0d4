"""How a sealed score leaves: in levels that the same row always has, however it is computed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.methods.sealed_grain import GROUPS, Grain, SealedSettings


def test_levels_are_the_nearest_and_draws_repeat_for_the_same_row() -> None:
    source = torch.Generator().manual_seed(0)
    groups = (torch.randn(500, generator=source) - 3, torch.randn(100, generator=source) + 3)
    scores = torch.cat(groups)[:, None].double()
    grain = Grain.of(scores, GROUPS, 0.0, 1)
    torch.testing.assert_close(
        grain.levels[0], torch.stack([scores[:500].mean(), scores[500:].mean()]), atol=0.1, rtol=0
    )
    assert set(grain(scores, scores)[:, 0].tolist()) <= set(grain.levels[0].tolist())
    flipping = replace(grain, flip=0.3)
    first, second = flipping(scores, scores), flipping(scores.flip(0), scores.flip(0)).flip(0)
    assert torch.equal(first, second)
    changed = float((first != grain(scores, scores)).float().mean())
    assert 0.02 < changed < 0.2, "a draw often gives the same level"
    other = replace(flipping, salt=2)(scores, scores)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("cuts", [(0.5,), (0.25, 0.5, 0.75), (0.2, 0.4, 0.6, 0.8)])
def test_a_row_has_the_same_level_however_its_score_is_rounded(cuts: tuple[float, ...]) -> None:
    """Scores of bins repeat, and quantiles lie on them: no edge does."""
    scores = torch.randint(7, (400, 2), generator=torch.Generator().manual_seed(5)) / 7.0 + 0.1
    grain = Grain.of(scores, cuts, 0.0, 0)
    for factor in (1 - 1e-6, 1 + 1e-6):
        assert torch.equal(grain(scores * factor, scores), grain(scores, scores))
    assert len(grain(scores, scores).unique()) > len(cuts)


def test_two_groups_are_found_where_most_rows_have_the_lowest_score() -> None:
    scores = (torch.arange(100) >= 70).double()[:, None]
    assert Grain.of(scores, GROUPS, 0.0, 1).levels.tolist() == [[0.0, 1.0]]


def test_a_constant_score_has_levels_too() -> None:
    grain = Grain.of(torch.zeros(50, 1).double(), GROUPS, 0.0, 1)
    assert np.unique(grain(torch.zeros(3, 1).double(), torch.zeros(3, 1))).tolist() == [0.0]


@pytest.mark.parametrize("wrong", [{"levels": 1}, {"levels": 6}, {"most_of_number": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=r"sealed\."):
        SealedSettings(**wrong)  # type: ignore[arg-type]
