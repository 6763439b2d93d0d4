"""Columns of a file help to read each other; a CSV file's points may stand between thousands."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from protoevfl.rows.readings import Reading
from protoevfl.rows.recognise import Recognition, recognise
from protoevfl.rows.survey import FeatureSpec

COMMA, POINT = Reading("number", "comma"), Reading("number", "point")


def found(
    columns: dict[str, list[Any]], typed: bool = True, mark: str = "", **spec: Any
) -> Recognition:
    """Recognition of texts; those of `typed=False` are first read as a CSV reader would."""

    def batches(names: Sequence[str], text: Sequence[str]) -> Iterator[Any]:
        table = pa.table({name: _column(columns[name], typed or name in text) for name in names})
        yield from table.to_batches(2)

    return recognise(batches, FeatureSpec(tuple(columns), **spec), typed, mark)


def _column(values: list[Any], as_it_is: bool) -> Any:
    texts = pa.array(values)
    try:
        return texts if as_it_is else texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return texts


def test_one_column_settles_the_other() -> None:
    open_one = ["1,234", "5,678"]
    assert found({"a": open_one, "b": ["5,3", "2,25"]}).readings == {"a": COMMA, "b": COMMA}
    beside_points = found({"a": open_one, "b": ["5.3", "1,000.25"]}).readings
    assert beside_points == {"a": POINT, "b": POINT}
    days = {"a": ["01/02/2020"], "b": ["01/31/2020"]}
    assert found(days).readings["a"] == Reading("date", order="month_first")
    assert found(days, dates="day_first").readings["a"] == Reading("date", order="day_first")


def test_settings_decide_before_the_file_and_the_separator_before_the_guess() -> None:
    open_one = {"a": ["1,234", "5,678"]}
    assert found(open_one, decimal="comma").readings == {"a": COMMA}
    assert found(open_one, typed=False, mark=";").readings == {"a": COMMA}
    assert "could be written" in found(open_one, typed=False, mark=";").remarks["a"]
    assert found(open_one, typed=False, mark=",").readings == {"a": POINT}


def test_points_of_a_csv_file_may_stand_between_thousands() -> None:
    turnover = ["1.234", "12.500", "7.000"]
    assert found({"a": turnover, "b": ["5,3", "2,25", "1,5"]}, typed=False).readings["a"] == COMMA
    assert found({"a": turnover, "b": ["5.3", "2.25", "1.5"]}, typed=False).readings == {}
    assert found({"a": [*turnover, "950"]}, typed=False).readings == {"a": COMMA}
    alone = found({"a": turnover}, typed=False)
    assert alone.readings == {"a": POINT}
    assert 'decimal = "comma"' in alone.remarks["a"]
    assert found({"a": turnover}, typed=False, decimal="comma").readings == {"a": COMMA}


def test_every_bad_column_is_named_and_listed_ones_are_left_alone() -> None:
    columns = {"a": ["5,3", "5.3"], "b": ["€ 1", "$ 2"], "c": [[1], [2]], "d": ["5,3", "5.3"]}
    result = found(columns, categorical=["d"])
    assert list(result.errors) == ["a", "b", "c"]
    assert result.errors["c"].startswith("has the type list")
    assert result.readings == {}


@pytest.mark.parametrize("kind", ["dictionary", "number", "nothing"])
def test_what_is_typed_is_left_as_it_is(kind: str) -> None:
    column = {"dictionary": pa.array(["1,5", "2,5"]).dictionary_encode(), "number": pa.array([1.0, 2.5]),
              "nothing": pa.nulls(2)}[kind]  # fmt: skip
    table = pa.table({"x": column})
    result = recognise(lambda names, text: iter(table.to_batches()), FeatureSpec(("x",)), True)
    assert result == Recognition()
