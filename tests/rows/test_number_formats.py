"""Numbers as people write them: what a text could be, and what it is under one way of writing."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.rows.number_formats import cell_texts, forms, is_money, parse, without_marks


def texts(*values: str | None) -> pa.Array:
    return cell_texts(pa.array(values, pa.string()))


@pytest.mark.parametrize(
    ("text", "decimal", "unit", "value"),
    [
        ("1.234,50", "comma", "", 1234.5),
        ("1,234.50", "point", "", 1234.5),
        ("1\u00a0234,50", "comma", "", 1234.5),
        ("1’234.50", "point", "", 1234.5),
        ("12,34,567", "point", "", 1234567),
        ("1.234.567", "comma", "", 1234567),
        (" −5,5 ", "comma", "", -5.5),
        ("(12.00)", "point", "", -12),
        ("12,00-", "comma", "", -12),
        ("1,5E+03", "comma", "", 1500),
        (",5", "comma", "", 0.5),
        ("12,5 %", "comma", "%", 0.125),
        ("0", "point", "%", 0),
        ("€ 5", "point", "€", 5),
        ("-€5", "point", "€", -5),
        ("5 EUR", "point", "EUR", 5),
        ("7", "point", "€", 7),
        ("12 kg", "point", "kg", 12),
    ],
)
def test_a_number_in_its_way_of_writing(text: str, decimal: str, unit: str, value: float) -> None:
    values, bad = parse(texts(text), decimal, unit)
    assert not bad[0]
    assert values[0] == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "decimal", "unit"),
    [
        ("5,3", "point", ""),
        ("5.3", "comma", ""),
        ("1,23,4", "point", ""),
        ("0.125", "comma", ""),
        ("12,-", "comma", ""),
        ("(5", "point", ""),
        ("12", "point", "%"),
        ("12", "point", "kg"),
        ("$ 5", "point", "€"),
        ("€ 5", "point", ""),
        ("abc", "point", ""),
        ("5a", "point", ""),
    ],
)
def test_what_is_written_in_another_way_does_not_fit(text: str, decimal: str, unit: str) -> None:
    values, bad = parse(texts(text), decimal, unit)
    assert bad[0]
    assert np.isnan(values[0])


def test_only_marks_that_could_be_either_leave_it_open() -> None:
    found = forms(texts("1,234", "1.234", "5,3", "5.3", "12", "0,125", "word"))
    assert found.fits["point"].tolist() == [True, True, False, True, True, False, False]
    assert found.fits["comma"].tolist() == [True, True, True, False, True, True, False]


def test_marks_for_no_value_are_missing_and_infinities_are_told() -> None:
    valued, infinite = without_marks(texts("-", "#DIV/0!", "None", "-Infinity", "∞", "5", None))
    assert valued.to_pylist() == [None] * 5 + ["5", None]
    assert infinite.to_pylist() == [False, False, False, True, True, False, False]
    values, bad = parse(valued, "point", "")
    assert not bad.any()
    assert np.isnan(values[[0, 3, 6]]).all()


@given(st.integers(-(10**9), 10**9), st.sampled_from([" ", "'", ".", ","]))
def test_grouping_and_the_decimal_mark_change_nothing(cents: int, mark: str) -> None:
    value = cents / 100
    decimal = "comma" if mark in " ." else "point"
    sign = "," if decimal == "comma" else "."
    text = f"{value:,.2f}".replace(",", "T").replace(".", sign).replace("T", mark)
    values, bad = parse(texts(text), decimal, "")
    assert not bad[0]
    assert values[0] == pytest.approx(value)


def test_money() -> None:
    assert [is_money(unit) for unit in ("€", "EUR", "R$", "kg", "%")] == [
        True,
        True,
        True,
        False,
        False,
    ]
