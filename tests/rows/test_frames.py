"""Tables of any make, and parties whose rows can be cut."""

import numpy as np
import pyarrow as pa
import pytest

from protoevfl.errors import UserError
from protoevfl.rows.frames import Frame, Parties, row_count, take


def test_parties_are_cut_row_by_row() -> None:
    parties = Parties({"a": np.arange(12).reshape(6, 2), "b": pa.table({"u": list("uvwxyz")})})
    assert (len(parties), parties.shape) == (6, (6, 2))
    for rows in (np.array([4, 1]), ([4, 1], ...), [4, 1]):
        some = parties[rows]
        assert some.tables["a"].tolist() == [[8, 9], [2, 3]]
        assert some.tables["b"]["u"].to_pylist() == ["y", "v"]
    assert len(parties[np.arange(6) > 3]) == 2
    assert len(parties[1:4]) == 3
    with pytest.raises(UserError, match="same rows"):
        Parties({"a": np.zeros((2, 1)), "b": np.zeros((3, 1))})


def test_one_frame_is_split_by_columns() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"u": [1, 2], "v": [3, 4], "w": [5, 6]})
    parties = Parties.split(frame, {"a": ["u"], "b": ["v", "w"]})
    assert parties.tables["b"].columns.tolist() == ["v", "w"]
    assert Parties.split(frame.to_numpy(), {"a": [0], "b": [1, 2]}).tables["b"].shape == (2, 2)


def test_frames_become_arrow_tables_with_plain_texts() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for frame in (
        pandas.DataFrame({"n": [1, 2], "t": ["x", None]}),
        polars.DataFrame({"n": [1, 2], "t": ["x", None]}),
        pa.table({"n": [1, 2], "t": ["x", None]}),
    ):
        (table,) = Frame("bank", frame).tables
        assert table.schema.field("t").type == pa.string()
        assert table["t"].to_pylist() == ["x", None]
        assert row_count(take(frame, np.array([1]))) == 1
    assert Frame("bank", pandas.DataFrame({0: [1.0], 1: [2.0]})).columns == ("0", "1")
    assert Frame("bank", np.zeros((2, 3))).columns == ("x0", "x1", "x2")


def test_what_is_no_table_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(UserError, match="bank: a table of numbers"):
        Frame("bank", np.array([["x"]]))
    with pytest.raises(UserError, match="mixes types"):
        Frame("bank", pandas.DataFrame({"m": [1, "x"]}))
    with pytest.raises(UserError, match="missing or infinite"):
        Frame("bank", np.full((1, 1, 2, 2), np.nan))
    assert Frame("bank", np.zeros((2, 3))).shape is None
    assert Frame("bank", np.zeros((2, 3, 4))).shape == (1, 3, 4)
