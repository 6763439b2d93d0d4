"""Codes of a column: one slot a value, the unknown has a place or none, the curve keeps order and
sign."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.rows.feature_codes import Category, Number, curve

finite = st.floats(-1e12, 1e12)


def texts(*values: str | None) -> Any:
    return pa.array(values, pa.string())


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_every_value_has_the_slot_of_its_label(other: bool, missing: bool) -> None:
    code = Category("city", ("Köln", "Ulm", "東京"), other, missing)
    slots = code.slots(texts("東京", "Köln", "new", None, "Ulm")).tolist()
    assert [slots[i] for i in (1, 4, 0)] == [0, 1, 2]
    assert [code.labels[slot] if slot >= 0 else None for slot in slots] == [
        "city = 東京",
        "city = Köln",
        "city other" if other else None,
        "city missing" if missing else None,
        "city = Ulm",
    ]
    assert len(code.labels) == 3 + other + missing


@given(st.lists(st.sampled_from(["a", "b", "c", "?", "", None]), max_size=30))
def test_slots_agree_with_a_lookup_one_by_one(values: list[str | None]) -> None:
    code = Category("c", ("a", "c"), True, True)
    slow = [3 if v is None else {"a": 0, "c": 1}.get(v, 2) for v in values]
    assert code.slots(texts(*values)).tolist() == slow


def test_no_rows_and_nothing_but_missing_values() -> None:
    code = Category("c", ("a",), False, False)
    assert code.slots(texts()).shape == (0,)
    assert code.slots(texts(None, None)).tolist() == [-1, -1]


def test_a_value_spelled_like_a_label_is_an_ordinary_value() -> None:
    code = Category("c", ("missing", "other"), True, True)
    assert code.slots(texts("other", "missing", "x", None)).tolist() == [1, 0, 2, 3]
    assert len(set(code.labels)) == 4


def test_a_number_has_a_second_feature_only_where_values_were_missing() -> None:
    assert Number("x", 0.0, 1.0, 0.0, None, missing=False).labels == ["x"]
    assert Number("x", 0.0, 1.0, 0.0, None, missing=True).labels == ["x", "x missing"]


def test_codes_go_to_json_and_back() -> None:
    number = Number("größe", 1 / 3, 1e-300, -0.1, 0.7, True)
    assert Number(**json.loads(json.dumps(asdict(number)))) == number
    category = Category("c", ("ä", "b"), True, False)
    facts = json.loads(json.dumps(asdict(category)))
    assert Category(**{**facts, "values": tuple(facts["values"])}) == category


@given(st.lists(finite, min_size=1, max_size=20), st.floats(1e-6, 1e6))
def test_the_curve_keeps_order_sign_and_zero(values: list[float], scale: float) -> None:
    x = np.sort(np.array(values))
    g = curve(x, scale)
    assert (np.diff(g) >= 0).all()
    assert (
        np.array_equal(np.sign(g), np.sign(x))
        or (np.abs(x[np.sign(g) != np.sign(x)]) < 1e-300).all()
    )
    assert np.allclose(curve(-x, scale), -g)
    assert curve(np.zeros(1), scale).tolist() == [0.0]


@given(finite, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_the_curve_does_not_depend_on_the_unit(x: float, scale: float, unit: float) -> None:
    assert np.allclose(
        curve(np.array([x * unit]), scale * unit),
        curve(np.array([x]), scale),
        rtol=1e-9,
        atol=1e-12,
    )


def test_without_a_scale_the_curve_changes_nothing_and_missing_stays_missing() -> None:
    x = np.array([-2.5, 0.0, 7.0, np.nan])
    assert np.array_equal(curve(x, None), x, equal_nan=True)
    assert np.isnan(curve(x, 2.0)).tolist() == [False, False, False, True]
    assert curve(np.array([3.0]), 1.0)[0] == pytest.approx(np.log(4))
