"""One table cut by columns: by name, by number, dealt out; errors say which column is wrong."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning

from protoevfl.errors import UserError
from protoevfl.estimator.one_table import (
    by_party,
    is_one_table,
    one_dimensional,
    tables_features,
    value_errors,
)
from protoevfl.rows.frames import Parties

ARRAY = np.arange(12.0).reshape(3, 4)
TABLE = pa.table({"age": [1, 2], "city": ["a", None], "claims": [0.5, 0.25]})


class Model(BaseEstimator):  # type: ignore[misc]
    """Something with scikit-learn's attributes about columns."""


def test_columns_are_dealt_out_in_order_and_named_by_place() -> None:
    parts = by_party(Model(), ARRAY, 3, reset=True)
    assert list(parts) == ["party_0", "party_1", "party_2"]
    assert [part.column_names for part in parts.values()] == [["x0", "x1"], ["x0"], ["x0"]]
    assert parts["party_2"]["x0"].to_pylist() == [3, 7, 11]


def test_columns_go_by_name_or_number() -> None:
    model = Model()
    parts = by_party(model, TABLE, {"bank": ["claims", "age"], "shop": [1]}, reset=True)
    assert parts["bank"].column_names == ["claims", "age"]
    assert parts["shop"]["city"].to_pylist() == ["a", None]
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == TABLE.column_names


@pytest.mark.parametrize(
    ("table", "split", "says"),
    [
        (ARRAY, 1, "two or more parties"),
        (ARRAY[:, :1], 2, "n_features=1"),
        (ARRAY, {"bank": [0]}, "two or more parties"),
        (ARRAY, {"bank": [0], "shop": [4]}, "shop: there is no column 4; the table has 4"),
        (ARRAY, {"bank": [0], "shop": ["age"]}, "no column 'age'; this table has numbers"),
        (TABLE, {"bank": ["age"], "shop": ["claim"]}, "did you mean 'claims'"),
        (TABLE.slice(0, 0), 2, "no rows"),
    ],
)
def test_what_cannot_be_cut_is_told(table: Any, split: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        by_party(Model(), table, split, reset=True)


def test_only_tables_by_party_are_several() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    assert not is_one_table({"bank": ARRAY})
    assert not is_one_table(Parties({"bank": ARRAY}))
    assert is_one_table(ARRAY)
    assert is_one_table(sparse.dok_array((2, 2)))


def test_columns_of_several_tables_are_counted_and_named_by_party() -> None:
    assert tables_features({"bank": TABLE, "shop": TABLE}) == (
        6,
        [f"{party}__{name}" for party in ("bank", "shop") for name in TABLE.column_names],
    )
    assert tables_features({"bank": TABLE, "shop": ARRAY}) == (7, None)
    assert tables_features({"bank": TABLE, "camera": np.zeros((2, 3, 8, 8))}) == (3 + 192, None)


def test_a_column_of_labels_is_a_list_with_a_warning() -> None:
    with pytest.warns(DataConversionWarning):
        assert one_dimensional(np.array([[1], [0]]), Model()).tolist() == [1, 0]
    with pytest.raises(UserError, match="SimpleNamespace requires y"):
        one_dimensional(None, SimpleNamespace())


def test_errors_are_of_both_kinds() -> None:
    with pytest.raises(ValueError, match="too short") as caught, value_errors():
        raise UserError("too short")
    assert isinstance(caught.value, UserError)
