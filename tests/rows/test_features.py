"""Features: training rows alone decide, batches do not matter, JSON restores exactly; the
unreadable is refused."""

import json
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protoevfl.errors import UserError
from protoevfl.rows import survey as survey_module
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.readings import Reading
from protoevfl.rows.survey import FeatureSpec


def table(**columns: Any) -> Any:
    return pa.table(columns)


def fit(data: Any, **spec: Any) -> TableEncoder:
    return TableEncoder.fit(data, FeatureSpec(tuple(data.column_names), **spec))


def mixed(n: int = 200, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.normal(5, 3, n)
    return table(
        x=pa.array(x, mask=rng.random(n) < 0.1),
        amount=rng.lognormal(8, 2, n),
        n=rng.integers(0, 90, n),
        flag=rng.random(n) < 0.3,
        day=[date(2020, 1, 1 + i % 28) for i in range(n)],
        city=rng.choice(["Bonn", "Ulm", None], n).tolist(),
    )


def test_numbers_are_standardised_and_missing_marked() -> None:
    data = mixed()
    encoder = fit(data)
    out = encoder.transform(data)
    assert out.shape == (200, encoder.width)
    assert out.dtype == np.float32
    present = data["x"].is_valid().to_numpy()
    assert abs(out[present, 0].mean()) < 1e-5
    assert abs(out[present, 0].std() - 1) < 1e-5
    assert np.array_equal(out[:, 1], ~present)
    assert len(set(out[~present, 0].tolist())) == 1
    assert encoder.names[:2] == ["x", "x missing"]


def test_heavy_tails_take_the_logarithm_others_do_not() -> None:
    codes = {code.name: code for code in fit(mixed()).codes}
    assert codes["amount"].scale is not None  # type: ignore[union-attr]
    assert codes["x"].scale is None  # type: ignore[union-attr]
    assert codes["n"].scale is None  # type: ignore[union-attr]


def test_units_do_not_matter() -> None:
    data = mixed()
    scaled = data.set_column(1, "amount", pa.array(data["amount"].to_numpy() * 1e-6))
    assert np.allclose(fit(data).transform(data), fit(scaled).transform(scaled), atol=1e-4)


def test_spans_cover_the_features_column_by_column() -> None:
    encoder = fit(mixed())
    assert [end for _, end in encoder.spans[:-1]] == [start for start, _ in encoder.spans[1:]]
    assert encoder.spans[0][0] == 0
    assert encoder.spans[-1][1] == encoder.width == len(encoder.names)
    start, end = encoder.spans[encoder.columns.index("city")]
    assert encoder.names[start:end] == ["city = Bonn", "city = Ulm", "city missing"]
    assert (encoder.transform(mixed())[:, start:end].sum(axis=1) == 1).all()


def test_rare_values_share_a_feature_and_unknown_ones_join_them_or_are_zero() -> None:
    common = ["a"] * 10 + ["b"] * 10
    with_other = fit(table(c=[*common, "r", "s"]))
    assert with_other.names == ["c = a", "c = b", "c other"]
    assert with_other.transform(table(c=["r", "new", None])).tolist() == [
        [0, 0, 1],
        [0, 0, 1],
        [0, 0, 0],
    ]
    without = fit(table(c=common))
    assert without.transform(table(c=["b", "new", None])).tolist() == [[0, 1], [0, 0], [0, 0]]


def test_cap_on_categories() -> None:
    values = [f"v{i:02d}" for i in range(40) for _ in range(5 + i)]
    encoder = fit(table(c=values), max_categories=8)
    assert encoder.width == 9
    assert encoder.names[0] == "c = v32"


def test_one_category_in_any_type() -> None:
    encoder = fit(table(c=[1, 2] * 10), categorical=["c"])
    for column in (
        [1, 2],
        [1.0, 2.0],
        ["1", " 2"],
        ["1.0", "2.00"],
        pa.array(["1", "2"]).dictionary_encode(),
    ):
        assert encoder.transform(table(c=column)).tolist() == [[1, 0], [0, 1]]
    for column in ([1.0, 2.5], ["1.0", "x"]):
        assert encoder.transform(table(c=column))[1].tolist() == [0, 0]


def test_dates_and_times_are_days() -> None:
    days = fit(table(d=[date(2020, 1, 1), date(2020, 1, 3)]))
    moment = table(d=[datetime(2020, 1, 1), datetime(2020, 1, 2, 12)])
    assert days.transform(moment)[:, 0].tolist() == pytest.approx([-1.0, 0.5])


def test_training_rows_alone_decide() -> None:
    data = table(x=[1.0, 3.0, 1e9], c=["a", "b", "z"])
    keep = np.array([True, True, False])
    encoder = TableEncoder.fit(data, FeatureSpec(("x", "c"), categorical=["c"]), keep=keep)
    assert encoder.transform(data)[:, 0].tolist() == [-1, 1, 10]  # clipped
    assert "c = z" not in encoder.names


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60), st.integers(0, 5))
def test_batches_do_not_matter(size: int, seed: int) -> None:
    data = mixed(150, seed)
    whole = fit(data)
    parts = TableEncoder.fit(iter(data.to_batches(size)), FeatureSpec(tuple(data.column_names)))
    assert parts.state() == whole.state()
    assert np.array_equal(
        whole.transform(data), parts.transform(iter(data.to_batches(size)), rows=150)
    )


def test_a_sample_stands_for_the_rest_whatever_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "SAMPLE", 2000)
    data = mixed(20_000)
    spec = FeatureSpec(tuple(data.column_names))
    one, other = (TableEncoder.fit(iter(data.to_batches(size)), spec) for size in (700, 20_000))
    assert one.state() == other.state()
    assert abs(one.codes[0].mean - 5) < 0.3  # type: ignore[union-attr]


def test_json_restores_exactly() -> None:
    data = mixed()
    encoder = fit(data)
    again = TableEncoder.from_state(json.loads(json.dumps(encoder.state())))
    assert np.array_equal(again.transform(data), encoder.transform(data))
    assert (again.spans, again.names, again.state()) == (
        encoder.spans,
        encoder.names,
        encoder.state(),
    )
    with pytest.raises(UserError, match="version"):
        TableEncoder.from_state({"version": 99})


def test_columns_that_say_nothing_are_dropped_and_named() -> None:
    encoder = fit(table(x=[1.0, 2.0], same=[7, 7], empty=pa.nulls(2), one=["a", "a"]))
    assert encoder.columns == ["x"]
    assert set(encoder.dropped) == {"same", "empty", "one"}
    with pytest.raises(UserError, match="no usable feature"):
        fit(table(same=[7, 7]))


def test_never_anything_but_finite() -> None:
    encoder = fit(table(x=[1.0, 2.0, float("inf"), None]))
    assert np.isfinite(encoder.transform(table(x=[float("nan"), -float("inf"), 1e300]))).all()


def test_refusals() -> None:
    with pytest.raises(
        UserError, match=r"'age' holds 'old' \(row 2\); it is read as plain numbers"
    ):
        fit(table(age=["1", "old"]), numeric=["age"])
    with pytest.raises(UserError, match="declare it as an image"):
        fit(table(pixels=[[1, 2], [3, 4]]))
    with pytest.raises(UserError, match="no rows"):
        fit(table(x=pa.array([], pa.float64())))
    encoder = fit(table(x=[1.0, 2.0]))
    with pytest.raises(UserError, match="did the file change"):
        encoder.transform(iter(table(x=[1.0]).to_batches()), rows=2)


def test_row_of_a_bad_number_counts_from_the_start_of_the_file() -> None:
    batches = table(age=["1", "2", "3", "4", "old"]).to_batches(2)
    with pytest.raises(UserError, match=r"row 5"):
        TableEncoder.fit(iter(batches), FeatureSpec(("age",), numeric=["age"]))


def test_texts_that_are_numbers_when_listed() -> None:
    encoder = fit(table(x=["1", " 3", None]), numeric=["x"])
    assert encoder.transform(table(x=[1, 3, 3])).tolist() == [[-1, 0], [1, 0], [1, 0]]


def test_infinite_values_are_missing_and_said() -> None:
    encoder = fit(
        table(x=[1.0, 2.0, float("inf"), -float("inf"), None], y=[1.0, 2.0, 3.0, 4.0, 5.0])
    )
    assert encoder.remarks == {"x": "2 infinite values count as missing"}
    assert encoder.names == ["x", "x missing", "y"]


def test_a_reading_is_kept_with_the_code_and_older_states_have_none() -> None:
    reading = Reading("number", "comma", "€")
    data = table(x=["1,5 €", "2,5 €", "4 €"], y=[1.0, 2.0, 4.0])
    encoder = TableEncoder.fit(data, FeatureSpec(("x", "y")), readings={"x": reading})
    again = TableEncoder.from_state(json.loads(json.dumps(encoder.state())))
    assert again.readings == {"x": reading}
    assert np.array_equal(again.transform(data), encoder.transform(data))
    state = fit(table(y=[1.0, 2.0, 4.0])).state()
    del state["columns"][0]["reading"]
    assert TableEncoder.from_state({**state, "version": 1}).readings == {}
    with pytest.raises(UserError, match=r"'x' holds '2.5' \(row 1\); it is read as numbers in €"):
        again.transform(table(x=["2.5"], y=[1.0]))
