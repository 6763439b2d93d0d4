"""Labels: one name in any type, unlabelled rows marked, what cannot be a class refused."""

import pyarrow as pa
import pytest

from protoevfl.errors import UserError
from protoevfl.rows.labels import encode_labels


@pytest.mark.parametrize(
    "column", [[1, 0, None, 1], [1.0, 0.0, None, 1.0], ["1", " 0", None, "1.0"]]
)
def test_one_name_in_any_type(column: list[object]) -> None:
    codes, names = encode_labels(pa.array(column), "f")
    assert codes.tolist() == [1, 0, -1, 1]
    assert names == ("0", "1")


def test_booleans_and_order() -> None:
    assert encode_labels(pa.array([True, False]), "f")[1] == ("false", "true")
    assert encode_labels(pa.chunked_array([["10"], ["9", "2"]]), "f")[1] == ("2", "9", "10")
    assert encode_labels(pa.array(["b", "a"]), "f")[1] == ("a", "b")


def test_declared_classes_may_have_no_row() -> None:
    codes, names = encode_labels(pa.array(["yes", "no"]), "f", ["no", "maybe", "yes"])
    assert (codes.tolist(), names) == ([2, 0], ("no", "maybe", "yes"))
    with pytest.raises(UserError, match="'never', which is not among"):
        encode_labels(pa.array(["yes", "never"]), "f", ["no", "yes"])


def test_refusals() -> None:
    with pytest.raises(UserError, match="not an amount"):
        encode_labels(pa.array([i / 7 for i in range(100)]), "f")
    with pytest.raises(UserError, match="1001 different"):
        encode_labels(pa.array([str(i) for i in range(1001)]), "f")
    with pytest.raises(UserError, match="no label at all"):
        encode_labels(pa.array([None, None], pa.string()), "f")
    with pytest.raises(UserError, match="one class only"):
        encode_labels(pa.array(["a", "a", None]), "f")


def test_a_class_spelt_in_several_ways_is_refused_unless_listed() -> None:
    column = pa.array(["Yes", "no", "yes", "no"])
    with pytest.raises(
        UserError, match=r"f spells a class in several ways .'Yes' and 'yes'.; make"
    ):
        encode_labels(column, "f")
    assert encode_labels(column, "f", ["Yes", "no", "yes"])[1] == ("Yes", "no", "yes")
    with pytest.raises(UserError, match="several ways"):
        encode_labels(pa.array(["very good", "verygood", "bad"]), "f")


def test_hundreds_of_classes_are_not_all_printed() -> None:
    with pytest.raises(UserError, match=r"and 490 more$") as error:
        encode_labels(pa.array(["x"]), "f", [f"class {i}" for i in range(500)])
    assert len(str(error.value)) < 300
