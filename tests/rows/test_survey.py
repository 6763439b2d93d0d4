"""A survey: batches do not matter, the rows to learn from alone count, columns that say nothing are
named; codes of columns go to JSON and back."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.errors import UserError
from protoevfl.rows import survey as survey_module
from protoevfl.rows.survey import Category, FeatureSpec, Number, Survey, curve

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


HUGE = sys.float_info.max


def surveyed(
    size: int | None = None, keep: Any = None, spec: FeatureSpec | None = None, **columns: Any
) -> Survey:
    table = pa.table(columns)
    survey = Survey(spec or FeatureSpec(tuple(columns)), "bank.csv")
    start = 0
    for batch in table.to_batches(size):
        survey.add(
            batch, start, None if keep is None else np.array(keep[start : start + batch.num_rows])
        )
        start += batch.num_rows
    return survey


def number(values: Sequence[float | None]) -> Number:
    (code,) = surveyed(x=pa.array(values, pa.float64())).codes()[0]
    assert isinstance(code, Number)
    return code


def test_mean_spread_and_median_are_those_of_the_values_that_are_there() -> None:
    code = number([1.0, None, 2.0, float("inf"), 6.0, float("nan")])
    assert (code.mean, code.std, code.median) == pytest.approx((3.0, np.std([1, 2, 6]), 2.0))
    assert code.missing
    assert code.scale is None


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0, HUGE, HUGE] * 5,
        [HUGE, -HUGE] * 4,
        [*range(40), HUGE],
        [1e200, 2e200, 5.0] * 5,
        [5e-324, 1.0, 2.0],
    ],
)
def test_numbers_at_the_end_of_the_range_give_finite_features(values: list[float]) -> None:
    code = number([float(v) for v in values])
    facts = [code.mean, code.std, code.median, code.scale or 1.0]
    json.dumps(facts, allow_nan=False)
    x = np.array(values, np.float64)
    z = (curve(x, code.scale) - code.mean) / code.std
    assert np.isfinite(z).all()
    assert len(np.unique(z)) > 1


@given(
    st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=4, max_size=60), st.integers(1, 9)
)
def test_a_survey_does_not_depend_on_batches(values: list[float | None], size: int) -> None:
    columns = {"x": pa.array(values, pa.float64()), "y": [float(i) for i in range(len(values))]}
    assert surveyed(size, **columns).codes() == surveyed(**columns).codes()


def test_a_sample_is_of_the_stated_size_and_the_same_whatever_the_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(survey_module, "SAMPLE", 100)
    x = np.arange(5000.0)
    one, other = surveyed(64, x=x), surveyed(x=x)
    assert len(one.sample) == 100
    assert np.array_equal(one.sample, other.sample)
    assert 1000 < one.sample.mean() < 4000


def test_only_the_rows_to_learn_from_count() -> None:
    keep = [True, False, True, False]
    survey = surveyed(keep=keep, x=[1.0, 1e9, 3.0, None], c=["a", "b", "a", None])
    assert survey.rows == 2
    codes, dropped = survey.codes()
    assert codes == [Number("x", 2.0, 1.0, 2.0, None, False)]
    assert dropped == {"c": "it has the same value everywhere"}


@pytest.mark.parametrize("size", [None, 2])
def test_the_row_of_a_bad_number_counts_every_row_of_the_file(size: int | None) -> None:
    spec = FeatureSpec(("age",), numeric=["age"])
    with pytest.raises(
        UserError, match=r"bank\.csv: column 'age' holds 'old' \(row 4\); it is read as plain"
    ):
        surveyed(size, [False, False, True, True, True], spec, age=["1", "2", "3", "old", "5"])
    learnt = surveyed(size, [True, True, True, False, True], spec, age=["1", "2", "3", "old", "5"])
    assert learnt.rows == 4


def test_missing_values_and_rare_ones_are_a_category_of_their_own() -> None:
    (code,), _ = surveyed(c=["b"] * 5 + ["a"] * 5 + ["rare", None]).codes()
    assert code == Category("c", ("a", "b"), other=True, missing=True)


def test_ties_between_values_are_broken_by_name() -> None:
    spec = FeatureSpec(("c",), max_categories=2)
    (code,), _ = surveyed(spec=spec, c=["d", "c", "b", "a"] * 5).codes()
    assert isinstance(code, Category)
    assert code.values == ("a", "b")


def test_asking_again_gives_the_same_codes() -> None:
    survey = surveyed(c=["a"] * 5 + ["b"] * 5 + [None], x=[float(i) for i in range(10)] + [None])
    assert survey.codes() == survey.codes()
    assert [asdict(code)["missing"] for code in survey.codes()[0]] == [True, True]


def test_columns_that_say_nothing_are_named_with_the_reason() -> None:
    empty = pa.nulls(4, pa.float64())
    codes, dropped = surveyed(
        x=[1.0, 2.0, 3.0, 4.0], same=[7, 7, 7, 7], empty=empty, once=["a", "b", "c", "d"]
    ).codes()
    assert [code.name for code in codes] == ["x"]
    assert dropped == {
        "same": "it has the same value everywhere",
        "empty": "it has no values",
        "once": "no value occurs often enough",
    }


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(UserError, match=r"bank\.csv has no rows to learn from"):
        surveyed(x=pa.array([], pa.float64())).codes()
    with pytest.raises(UserError, match="no rows to learn from"):
        surveyed(keep=[False, False], x=[1.0, 2.0]).codes()
    with pytest.raises(
        UserError, match=r"no usable feature column: 'x' it has the same value everywhere$"
    ):
        surveyed(x=[1.0, 1.0]).codes()


def test_free_text_is_left_out_with_the_reason_unless_it_is_listed() -> None:
    words = [f"Straße {i}" for i in range(50)]
    x = list(range(50))
    codes, dropped = surveyed(c=words, x=x).codes()
    assert [code.name for code in codes] == ["x"]
    assert dropped["c"].startswith("free text: 50 different texts in 50 rows; list it under")
    spec = FeatureSpec(("c", "x"), categorical=["c"])
    _, dropped = surveyed(spec=spec, c=words, x=x).codes()
    assert dropped == {"c": "no value occurs often enough"}


def test_more_texts_than_can_be_counted_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "_MOST_TEXTS", 20)
    words = [f"word {i}" for i in range(60)]
    survey = surveyed(10, c=words, x=[float(i) for i in range(60)])
    assert not survey.counts["c"]
    assert survey.codes()[1]["c"].startswith("free text: more than 20 different texts")


def test_a_heavy_tail_takes_the_logarithm_and_an_even_column_does_not() -> None:
    rng = np.random.default_rng(0)
    heavy, even = number(rng.lognormal(3, 2, 500).tolist()), number(rng.normal(3, 2, 500).tolist())
    assert heavy.scale is not None
    assert even.scale is None
    few = number(([0.0] * 99 + [1e6]) * 5)
    assert few.scale is None  # ten values or fewer: more a code than an amount
