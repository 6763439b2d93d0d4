"""A column has one way of writing, told by all of its values in whatever batches they come."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.rows.column_forms import ColumnForms, Verdict
from protoevfl.rows.readings import Reading


def verdict(values: list[str | None], size: int = 1000, **settings: object) -> Verdict:
    column = ColumnForms("x")
    for start in range(0, len(values), size):
        column.add(pa.array(values[start : start + size], pa.string()), start)
    given_settings = {"decimal": "", "order": "", "guess": "point", "fewest": 0, "is_listed": False}
    return column.verdict(**{**given_settings, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "reading"),
    [
        (["5,3", "1.234", None], Reading("number", "comma")),
        (["5.3", "1,234", "-"], Reading("number", "point")),
        (["950", "1,500", "12,340"], Reading("number", "point")),  # thousands
        (["950", "1.500", "12.340"], Reading("number", "comma")),
        (["1234", "1,500"], Reading("number", "comma")),  # thousands would have their mark
        (["12%", "7.5%", "0%"], Reading("number", "point", "%")),
        (["€ 5", "7"], Reading("number", "point", "€")),
        (["31/01/2020", "01/02/2020"], Reading("date", order="day_first")),
        (["01/31/2020", "01/02/2020"], Reading("date", order="month_first")),
        (["01.02.2020"], Reading("date", order="day_first")),
    ],
)
def test_sure_columns(values: list[str | None], reading: Reading) -> None:
    for size in (1, 1000):
        assert verdict(values, size) == Verdict(reading)


def test_what_is_open_is_settled_by_the_file_or_guessed_with_a_word() -> None:
    amounts = ["1,234", "5,678"]
    assert verdict(amounts, decimal="comma") == Verdict(Reading("number", "comma"))
    guessed = verdict(amounts)
    assert guessed.reading == Reading("number", "point")
    assert 'decimal = "comma"' in guessed.remark
    days = ["01/02/2020", "03/04/2020"]
    assert verdict(days, order="month_first") == Verdict(Reading("date", order="month_first"))
    assert 'dates = "month_first"' in verdict(days).remark
    assert "'" not in verdict(days).remark  # no cell is shown
    firsts = verdict([f"{month:02d}/01/2020" for month in range(1, 13)])
    assert firsts.reading == Reading("date", order="month_first")
    assert 'dates = "day_first"' in firsts.remark


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            ["5,3", "5.3"],
            "mixes decimal commas and decimal points ('5,3' in row 1 and '5.3' in row 2)",
        ),
        (["€ 5", "$ 5"], "mixes units ('€ 5' in row 1 and '$ 5' in row 2)"),
        (["5%", "5"], "mixes units"),
        (["31/01/2020", "01/31/2020"], "mixes ways of writing dates"),
        (
            [str(i) for i in range(40)] + ["n/k"],
            "mixes numbers and text (1 of 41 values, such as 'n/k')",
        ),
        ([f"{1 + i % 28}.1.2020" for i in range(40)] + ["old"], "mixes dates and text"),
    ],
)
def test_columns_that_look_like_numbers_and_do_not_fit_are_errors(
    values: list[str], words: str
) -> None:
    error = verdict(values).error
    assert error.startswith(words)
    assert "or list the column under categorical, or exclude it" in error


def test_codes_and_categories_are_never_taken_without_a_word() -> None:
    assert "taken as codes" in verdict(["01", "02", "10"]).remark
    assert "taken as codes" in verdict(["1", "2", "3"], fewest=32).remark
    assert verdict(["1", "2", "3"], fewest=32, is_listed=True).reading is not None
    assert verdict(["1", "2", "3"], fewest=2) == Verdict(Reading("number", "point"))
    assert "although 3 of its 4 values are numbers" in verdict(["0", "1", "2", "3+"]).remark
    assert "different letters" in verdict(["5a", "7b", "9"]).remark
    assert verdict(["Bonn", "Ulm"]) == Verdict()


def test_a_listed_column_that_is_no_number_names_the_value() -> None:
    assert verdict(["1", "old"], is_listed=True).error == (
        "is listed as numeric but holds 'old' (row 2)"
    )


VALUES = st.sampled_from(["1", "1,5", "1.5", "1,500", "2.000", "5%", "31/01/2020", "x", "-", None])


@given(st.lists(VALUES, max_size=12), st.integers(1, 5))
def test_batches_do_not_matter(values: list[str | None], size: int) -> None:
    assert verdict(values, size) == verdict(values)
