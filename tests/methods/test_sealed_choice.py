"""What may leave of a sealed score: within the bounds, as near to the exact score as they allow."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from protoevfl.methods.sealed_choice import Aim, Audit, Candidate, best_guess, choose, with_spread
from protoevfl.methods.sealed_grain import Grain, SealedSettings
from protoevfl.privacy.gives_away import SelfAuditError, columns_of, gives_away
from tests.methods.test_sealed import NUMBERS, SPANS, world


def test_the_best_guess_is_no_worse_than_decoders_that_learn() -> None:
    table = world()[0][1]
    place = (table.pool[:, 0] > 0.5).long() + 2 * table.pool[:, 4].long()
    columns = columns_of(table.pool, SPANS, NUMBERS)
    learnt = gives_away(columns, place[:, None].float())
    for name, column in columns.items():
        assert best_guess(column, place) > learnt[name] - 0.02
    assert best_guess(place, place) == 1
    assert best_guess(columns["column 4"], torch.zeros_like(place)) < 1e-9


def test_a_number_s_upper_figure_is_rarely_below_what_other_people_give_away() -> None:
    """Two errors above the figure of 400 rows, against that of 200,000: about one in forty is below."""
    source = torch.Generator().manual_seed(3)
    number = torch.randn(200_000, generator=source).double().exp()  # a long tail, as payments have
    place = (number + torch.randn(200_000, generator=source) > 2).long()
    whole = best_guess(number, place)
    drawn = torch.randint(200_000, (200, 400), generator=source)
    plain = sum(best_guess(number[rows], place[rows]) < whole for rows in drawn)
    upper = sum(best_guess(number[rows], place[rows], 2.0) < whole for rows in drawn)
    assert plain > 60
    assert upper < 20
    assert best_guess(place.double(), place, 2.0) == 1


ROWS = 4000


def features() -> Tensor:
    """Six standardised numbers; the first two go together."""
    x = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(0)).double()
    x[:, 1] += x[:, 0]
    return (x - x.mean(0)) / x.std(0)


def chosen(contrast: list[float], pushes: bool = True, **bounds: float) -> tuple[Candidate, Audit]:
    """The candidate for a contrast of two classes, the same in all folds."""
    own = features()
    covariance = own.T @ own / ROWS
    shrunken = covariance + 0.1 * torch.eye(6).double()
    contrasts = torch.tensor(contrast).double()[None, :, None].expand(6, -1, 1)
    columns = {f"column {j}": own[:, j] for j in range(6)}
    settings = SealedSettings(**bounds)  # type: ignore[arg-type]
    aim = Aim(shrunken, contrasts, covariance, own, columns, 3.0) if pushes else None
    plain = with_spread(torch.linalg.solve(shrunken, contrasts), covariance, 3.0)
    return choose(own, columns, plain, aim, 1, settings), Audit(columns, settings)


def test_the_choice_is_within_the_bounds_and_pushing_away_keeps_more_than_draws() -> None:
    contrast = [2.0, 2.0, 0.5, 0.5, 0.5, 0.5]
    exact = features() @ torch.tensor(contrast).double()
    kept = []
    for pushes in (True, False):
        found, audit = chosen(contrast, pushes, most_of_number=0.3)
        own = features()
        assert max(audit.scores(own, found.directions, found.grain).values()) <= 1
        sent = found.grain(own @ found.directions[-1], own)[:, 0]
        kept.append(float(torch.corrcoef(torch.stack([sent, exact]))[0, 1]))
    assert kept[0] > kept[1] + 0.02


def test_wide_bounds_leave_the_direction_as_it_is_and_take_the_finest_levels() -> None:
    found, _ = chosen([1.0, 0.0, 1.0, 1.0, 1.0, 1.0], most_of_number=1.0)
    assert found.grain.levels.shape == (1, 5)
    assert found.grain.flip == 0


def test_fewer_levels_are_taken_where_no_more_may_be() -> None:
    found, _ = chosen([1.0] * 6, most_of_number=1.0, levels=3)
    assert found.grain.levels.shape == (1, 3)


def test_a_score_that_is_one_column_is_refused() -> None:
    """Draws of two in five scores leave more of it than a tenth."""
    own = features()[:, :1]
    columns = {"the column": (own[:, 0] > 0).long()}
    with pytest.raises(SelfAuditError, match="'the column'"):
        choose(
            own,
            columns,
            torch.ones(6, 1, 1).double(),
            None,
            1,
            SealedSettings(most_of_category=0.1),
        )


def test_the_share_that_is_drawn_brings_a_score_to_its_bound() -> None:
    """Of a score that is a column: R^2 falls with the square of what is kept, a category's accuracy
    with it."""
    own = features()
    number, category = own[:, 0], (own[:, 2] > own[:, 2].median()).long()
    audit = Audit({"number": number, "category": category}, SealedSettings())
    assert audit.to_draw({"number": 0.9, "category": 1.0}) == 0
    for name, score in (("number", number), ("category", own[:, 2])):
        plain = Grain.of(score[:, None], (0.5,), 0.0, 1)
        over = audit.scores(score[:, None], torch.ones(1, 1, 1).double(), plain)
        drawn = replace(plain, flip=audit.to_draw(over))
        left = audit.scores(score[:, None], torch.ones(1, 1, 1).double(), drawn)
        assert over[name] > 1.2
        assert abs(left[name] - 1) < 0.1


def test_a_few_draws_do_where_a_push_jumps_over_the_bound() -> None:
    """A column of two values is either told or it is not: no direction tells it a little."""
    own = features()
    own[:, 0] = (own[:, 0] > 1).double() * 4 + 0.01 * own[:, 0]
    columns = {"two values": own[:, 0]}
    directions = torch.tensor([1.0, 0, 0, 0, 0, 0]).double()[None, :, None]
    settings = SealedSettings(most_of_number=0.8, levels=2)
    found = choose(own, columns, directions, None, 1, settings)
    assert 0 < found.grain.flip < 0.2
    assert max(Audit(columns, settings).scores(own, directions, found.grain).values()) <= 1
