"""Tables with an index are matched by it, and what cannot be matched is refused in one line."""

from typing import Any

import numpy as np
import pytest

from protoevfl.errors import UserError
from protoevfl.rows.frames import Parties
from protoevfl.rows.row_order import in_one_order, in_order_of, masks_in_order

pandas = pytest.importorskip("pandas")


def table(index: list[Any]) -> Any:
    """A frame whose value says which row it is."""
    return pandas.DataFrame({"row": [str(name) for name in index]}, index=index)


def rows(frame: Any) -> list[str]:
    return frame["row"].tolist()


def test_the_order_is_that_of_the_first_table() -> None:
    ordered = in_one_order({"bank": table([3, 1, 2]), "shop": table([1, 2, 3])})
    assert rows(ordered["shop"]) == rows(ordered["bank"]) == ["3", "1", "2"]
    cut = Parties({"bank": table([3, 1, 2]), "shop": table([1, 2, 3])})[[0, 2]]
    assert rows(cut.tables["shop"]) == ["3", "2"]


def test_equal_indices_and_tables_without_any_stay_as_they_are() -> None:
    twice = table(["a", "a", "b"])
    array = np.zeros((3, 2))
    given = {"bank": twice, "shop": table(["a", "a", "b"]), "gym": array}
    assert all(in_one_order(given)[name] is given[name] for name in given)
    assert in_order_of(array, given, "labels") is array
    labels = twice["row"]
    assert in_order_of(labels, {"gym": array}, "labels") is labels


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (table([0, 1, 2]), "shop lacks 1 of the 3 rows of bank .*such as '3'"),
        (table(["1", "2", "3"]), "lacks 3 of the 3"),
        (table([1, 1, 2]), "shop has '1' twice"),
    ],
)
def test_other_rows_are_refused(other: Any, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        in_one_order({"bank": table([3, 1, 2]), "shop": other})
    assert "reset_index" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_without_index_beside_two_that_differ_is_refused() -> None:
    tables = {"gym": np.zeros((3, 1)), "bank": table([3, 1, 2]), "shop": table([1, 2, 3])}
    with pytest.raises(UserError, match="gym has none to be matched by"):
        in_one_order(tables)


def test_labels_follow_the_tables() -> None:
    labels = pandas.Series(["one", "two", "three"], [1, 2, 3])
    assert in_order_of(labels, {"bank": table([3, 1, 2])}, "labels").tolist() == [
        "three",
        "one",
        "two",
    ]
    with pytest.raises(UserError, match="labels lacks 3 of the 3 rows of bank"):
        in_order_of(labels, {"bank": table([7, 8, 9])}, "labels")


def test_masks_follow_or_are_refused() -> None:
    given = {"bank": table([3, 1, 2]), "shop": table([1, 2, 3])}
    ordered = in_one_order(given)
    mask = pandas.Series([True, False, False], [1, 2, 3])
    assert masks_in_order({"shop": mask}, given, ordered)["shop"].tolist() == [False, True, False]
    assert masks_in_order({"bank": [True] * 3}, given, ordered) == {"bank": [True] * 3}
    with pytest.raises(UserError, match="must be a Series with the index of shop"):
        masks_in_order({"shop": [True] * 3}, given, ordered)
    assert masks_in_order(None, given, ordered) == {}
