"""The survey of training rows: what it learns is finite, does not depend on batches, and names the
row of an error."""

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
from protoevfl.rows import feature_survey
from protoevfl.rows.feature_codes import Category, FeatureSpec, Number, curve
from protoevfl.rows.feature_survey import Survey

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
def test_batches_do_not_matter(values: list[float | None], size: int) -> None:
    columns = {"x": pa.array(values, pa.float64()), "y": [float(i) for i in range(len(values))]}
    assert surveyed(size, **columns).codes() == surveyed(**columns).codes()


def test_a_sample_is_of_the_stated_size_and_the_same_whatever_the_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feature_survey, "SAMPLE", 100)
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
        UserError, match=r"bank\.csv: column 'age' is listed as numeric but holds 'old' \(row 4\)"
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
        UserError, match=r"no usable feature column: .*'x': 'it has the same value everywhere'"
    ):
        surveyed(x=[1.0, 1.0]).codes()


def test_free_text_is_refused_unless_it_is_listed() -> None:
    words = [f"Straße {i}" for i in range(50)]
    with pytest.raises(
        UserError,
        match=r"'c' holds 50 different texts in 50 rows: free text; exclude it, or list it",
    ):
        surveyed(c=words).codes()
    codes, _ = surveyed(
        spec=FeatureSpec(("c", "x"), categorical=["c"]), c=words, x=list(range(50))
    ).codes()
    assert [code.name for code in codes] == ["x"]


def test_numbers_with_some_text_among_them_show_one_of_the_texts() -> None:
    with pytest.raises(
        UserError, match=r"mixes numbers and text \(2 of 42 values, such as 'n/k'\); mend them"
    ):
        surveyed(age=[str(i) for i in range(40)] + ["n/k", "n/k", None]).codes()


def test_a_heavy_tail_takes_the_logarithm_and_an_even_column_does_not() -> None:
    rng = np.random.default_rng(0)
    heavy, even = number(rng.lognormal(3, 2, 500).tolist()), number(rng.normal(3, 2, 500).tolist())
    assert heavy.scale is not None
    assert even.scale is None
    few = number(([0.0] * 99 + [1e6]) * 5)
    assert few.scale is None  # ten values or fewer: more a code than an amount
