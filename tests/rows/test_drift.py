"""Pictures of columns: like rows pass, changed ones are said, and nothing of a single row is kept."""

import json
from collections import Counter

import numpy as np
import pytest

from protoevfl.rows.drift import (
    CategoryPicture,
    NumberPicture,
    category_differences,
    number_differences,
    pictures_from,
    pictures_state,
)

RNG = np.random.default_rng(0)
INCOME = RNG.lognormal(10, 0.6, 4000)


def income() -> NumberPicture:
    return NumberPicture.of(len(INCOME), 0, INCOME)


@pytest.mark.parametrize("rows", [1, 10, 300, 3000])
@pytest.mark.parametrize("kind", ["normal", "lognormal", "poisson", "standard_cauchy"])
def test_rows_drawn_like_those_of_training_seldom_say_anything(kind: str, rows: int) -> None:
    rng = np.random.default_rng(7)
    said = 0
    for _ in range(20):
        before = getattr(rng, kind)(size=1000).astype(float)
        now = getattr(rng, kind)(size=rows).astype(float)
        picture = NumberPicture.of(1000, 0, before)
        said += len(number_differences(picture, rows, 0, now))
    assert said <= 1


@pytest.mark.parametrize("times", [1000, 100, 10, 0.1, 0.01, 0.001])
def test_another_unit_is_named(times: float) -> None:
    (text,) = number_differences(income(), 300, 0, times * INCOME[:300])
    named = f"{times:g} times" if times > 1 else f"1/{1 / times:g} of"
    assert f"about {named} what it was" in text


def test_a_part_of_the_rows_in_another_unit_is_counted() -> None:
    values = INCOME[:500].copy()
    values[:50] *= 1000
    (text,) = number_differences(income(), 500, 0, values)
    assert text.startswith("has 10.0 % of its values far outside")


def test_one_row_in_another_unit_is_said() -> None:
    assert number_differences(income(), 1, 0, np.array([np.median(INCOME) * 1000]))
    assert not number_differences(income(), 1, 0, np.array([np.median(INCOME) * 2]))


def test_missing_values_are_said_where_there_are_more_than_by_chance() -> None:
    none, some = income(), NumberPicture.of(4000, 800, INCOME[800:])
    nothing = np.zeros(0)
    assert number_differences(none, 300, 300, nothing) == [
        "is empty in all 300 rows (in training never)"
    ]
    assert not number_differences(none, 1000, 2, INCOME[:998])
    assert number_differences(some, 1000, 400, INCOME[:600]) == [
        "is missing in 400 of 1,000 rows (in training 20.0 % of them)"
    ]
    assert not number_differences(some, 1000, 220, INCOME[:780])
    assert not number_differences(some, 1, 1, nothing)


def test_new_categories_and_other_rates_are_said() -> None:
    before = CategoryPicture.of(1000, Counter({"north": 700, "south": 280, None: 20}))
    assert not category_differences(before, 100, {"north": 70, "south": 30})
    (text,) = category_differences(before, 100, {"north": 70, "south": 29, "mars": 1})
    assert text == "has values in 1 of 100 rows that training did not have ('mars')"
    (text,) = category_differences(before, 100, {"north": 10, "south": 90})
    assert "'north' 10 % of the rows, 71 % then" in text


def test_rare_categories_are_expected_where_training_had_some() -> None:
    before = CategoryPicture.of(1000, Counter({"a": 950, **{f"r{i}": 1 for i in range(50)}}))
    assert set(before.rates) == {"a"}  # nobody is known by a value of one's own
    assert before.rare == pytest.approx(0.05)
    assert not category_differences(before, 100, {"a": 95, **{f"n{i}": 1 for i in range(5)}})
    (text,) = category_differences(before, 100, {"a": 70, **{f"n{i}": 1 for i in range(30)}})
    assert "30 of 100 rows that training hardly ever had" in text


def test_extremes_of_single_rows_are_not_kept() -> None:
    values = np.concatenate([INCOME, [123456789.0]])
    assert "1.23" not in json.dumps(NumberPicture.of(len(values), 0, values).quantiles[-1])
    assert max(NumberPicture.of(len(values), 0, values).quantiles) < 1e6


def test_pictures_go_to_json_and_back() -> None:
    pictures = {"income": income(), "region": CategoryPicture.of(10, {"a": 6, None: 4})}
    assert pictures_from(json.loads(json.dumps(pictures_state(pictures)))) == pictures


def test_a_column_without_values_says_nothing_but_that() -> None:
    empty = NumberPicture.of(10, 10, np.zeros(0))
    assert number_differences(empty, 10, 0, np.ones(10)) == []
