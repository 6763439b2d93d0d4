"""A reading says in words what it is, shows an example, and refuses what is written otherwise."""

import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest

from protoevfl.errors import UserError
from protoevfl.rows.readings import Reading


def test_words_and_examples() -> None:
    comma = Reading("number", "comma", "€")
    assert comma.words == "numbers in € with a decimal comma"
    assert comma.example("1.234,50 €") == "'1.234,50 €' is 1234.5"
    day = Reading("date", order="day_first")
    assert day.words == "dates with the day first"
    assert day.example("03.04.2020 12:00") == "'03.04.2020 12:00' is 2020-04-03"


def test_a_value_in_another_way_is_refused_with_its_row_and_a_way_out() -> None:
    column = pa.array(["1,5", "-", None, "2.5"])
    with pytest.raises(
        UserError,
        match=r"new.csv: column 'x' holds '2.5' \(row 104\); it is read as numbers with a decimal "
        "comma: write it so, or exclude",
    ):
        Reading("number", "comma").numbers(column, "x", "new.csv", 100)
    values = Reading("number", "comma").numbers(column[:3], "x", "new.csv", 0)
    np.testing.assert_array_equal(values, [1.5, np.nan, np.nan])


def test_json_restores_it() -> None:
    reading = Reading("date", order="month_first")
    assert Reading(**json.loads(json.dumps(asdict(reading)))) == reading
