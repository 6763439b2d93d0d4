"""Every spelling trap of id alignment: what must be equal is equal, what must differ differs, the
rest is refused."""

import unicodedata
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.errors import UserError
from protoevfl.rows.ids import IdRules, _join, _normalise, collect, shape, suspicions

FOLD = IdRules(casefold=True)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (123, "123"),
        (123.0, "123"),
        ("123.0", 123),
        ("123.000", np.float32(123)),
        (np.int64(7), Decimal("7.0")),
        ("A1 ", "A1"),
        ("\u00a0A1\t", "A1"),
        ("\ufeffA1", "A1"),
        ("A1\u200b", "A1"),
        (unicodedata.normalize("NFD", "Müller"), unicodedata.normalize("NFC", "Müller")),
        ("１２３", 123),
        (-0.0, "0"),
        ("-0.0", 0),
        (date(1987, 3, 1), "1987-03-01"),
        (datetime(1987, 3, 1), date(1987, 3, 1)),
    ],
)
def test_equal(left: object, right: object) -> None:
    assert _normalise(left) == _normalise(right) is not None


@pytest.mark.parametrize(
    ("left", "right"), [("00123", 123), ("A1", "a1"), ("A 1", "A1"), ("1.0.0", "1"), ("12.5", "12")]
)
def test_different(left: object, right: object) -> None:
    assert _normalise(left) != _normalise(right)


def test_case_is_folded_only_on_request() -> None:
    assert _normalise("Straße", FOLD) == _normalise("STRASSE", FOLD)
    assert _normalise("Ab") != _normalise("AB")
    assert FOLD.digest() != IdRules().digest() != IdRules(columns=2).digest()


@pytest.mark.parametrize("value", [None, "", "  ", float("nan"), "NaN", "null", "N/A", "\u200b"])
def test_missing(value: object) -> None:
    assert _normalise(value) is None


@pytest.mark.parametrize("value", [True, b"x", 1.5, 2.0**60, float("inf"), [1]])
def test_not_an_id(value: object) -> None:
    with pytest.raises(UserError):
        _normalise(value)


@given(st.text(max_size=12), st.booleans())
def test_idempotent(value: str, casefold: bool) -> None:
    once = _normalise(value, IdRules(casefold=casefold))
    assert once is None or _normalise(once, IdRules(casefold=casefold)) == once


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_numbers_in_any_type(value: int) -> None:
    assert (
        _normalise(value)
        == _normalise(str(value))
        == _normalise(float(value))
        == _normalise(f"{value}.0")
    )


@given(
    st.lists(st.text(max_size=5), min_size=2, max_size=2),
    st.lists(st.text(max_size=5), min_size=2, max_size=2),
)
def test_join_is_unambiguous(a: list[str], b: list[str]) -> None:
    assert (_join(a) == _join(b)) == (a == b)


def test_counts_and_rows() -> None:
    ids = collect([["a", "b", None, "a", "c", ""]], IdRules(), "f", on_bad="drop")
    assert ids.values == ["b", "c"]
    assert ids.rows.tolist() == [1, 4]
    assert (ids.counts.input, ids.counts.unique, ids.counts.missing, ids.counts.repeated) == (
        6,
        3,
        2,
        2,
    )
    assert ids.counts.input == len(ids.values) + ids.counts.dropped


def test_two_columns() -> None:
    ids = collect([["a", "ab"], ["bc", "c"]], IdRules(columns=2), "f")
    assert len(set(ids.values)) == 2
    with pytest.raises(UserError, match=r"1 rows have no id \(row 2\)"):
        collect([["a", "b"], ["x", None]], IdRules(columns=2), "f")


def test_missing_and_repeated_are_refused_with_their_rows() -> None:
    with pytest.raises(UserError, match=r"bank.csv: 2 rows have no id \(rows 2, 4\)"):
        collect([["a", "", "b", None]], IdRules(), "bank.csv")
    with pytest.raises(UserError, match="row 3 that of row 1"):
        collect([["7", "8", 7.0]], IdRules(), "bank.csv")


def test_no_id_is_ever_shown() -> None:
    with pytest.raises(UserError) as caught:
        collect([["secret-9", "secret-9"]], IdRules(), "bank.csv")
    assert "secret" not in str(caught.value)
    assert "secret" not in shape(["secret-9"])


def test_suspicions_name_the_trap() -> None:
    left = collect([["00123", "ab", "x-1", "same"]], IdRules(), "l")
    right = collect([["123", "AB", "x1", "same"]], IdRules(), "r")
    lines = suspicions(left, right, ("bank", "insurer"))
    assert len(lines) == 3
    assert "leading zeros (first: row 1 of bank, row 1 of insurer)" in lines[0]
    assert suspicions(left, left, ("a", "b")) == []


@pytest.mark.parametrize("value", ["1.23457E+18", "1,2E+11", "1234567890123456768.0"])
def test_ids_that_a_spreadsheet_or_a_float_rounded_are_refused(value: str) -> None:
    with pytest.raises(
        UserError, match=r"f: 1 ids are rounded numbers \(row 2, .*as text"
    ) as error:
        collect([["7", value]], IdRules(), "f", "drop")
    assert value not in str(error.value)
    exact = collect([["1234567890123456789", "123.0", "E+1", "12e5"]], IdRules(), "f")
    assert exact.values == ["1234567890123456789", "123", "E+1", "12e5"]
