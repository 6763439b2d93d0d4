"""Tables in memory: names, classes and encoders, and errors that say which table is wrong."""

import numpy as np
import pyarrow as pa
import pytest

from protoevfl.errors import UserError
from protoevfl.rows.frames import same_rows
from protoevfl.rows.in_memory import RowKinds, encode, encode_labels, named, prepare, who_has

BANK = pa.table({"age": [20, 30, 40, 50], "city": ["a", "b", "a", "b"]})
SHOP = pa.table({"spent": [1.0, 2.0, 3.0, 4.0]})


def test_a_list_gets_names_and_an_absent_party_is_left_out() -> None:
    assert list(named([BANK, SHOP])) == ["party_0", "party_1"]
    assert list(named({"bank": BANK, "shop": None, "gym": SHOP})) == ["bank", "gym"]


@pytest.mark.parametrize(
    ("parties", "says"), [("bank.csv", "give the parties as"), ({"bank": BANK}, "2 or more")]
)
def test_what_are_no_parties_is_told(parties: object, says: str) -> None:
    with pytest.raises(UserError, match=says):
        named(parties)


def test_tables_of_different_length_are_named() -> None:
    with pytest.raises(UserError, match="there are 4 of 'bank', 3 of 'shop'"):
        same_rows({"bank": BANK, "shop": SHOP.slice(0, 3)})


@pytest.mark.parametrize(
    ("labels", "codes", "classes"),
    [
        (["no", None, "yes", "no"], [0, -1, 1, 0], ["no", "yes"]),
        ([3.0, float("nan"), 7.0, 3.0], [0, -1, 1, 0], [3, 7]),
        (pa.array([1, 0, 1, 0]), [1, 0, 1, 0], [0, 1]),
        (np.array([True, False, True, False]), [1, 0, 1, 0], [False, True]),
    ],
)
def test_labels_become_class_numbers_and_missing_ones_minus_one(
    labels: object, codes: list[int], classes: list[object]
) -> None:
    found, names = encode_labels(labels, 4)
    assert found.tolist() == codes
    assert names.tolist() == classes


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([1, 2, 3], "one value per row"),
        ([0.5, 1.5, 2.5, 0.5], "must be classes"),
        (["one", "one", None, "one"], "two or more"),
    ],
)
def test_what_are_no_labels_is_told(labels: object, says: str) -> None:
    with pytest.raises(UserError, match=says):
        encode_labels(labels, 4)


def kinds(codes: list[int], has: list[list[int]] | None = None) -> RowKinds:
    """Rows by kind: class numbers, -1 without a label, and which of the parties has which row."""
    return RowKinds.of(np.array(has or [[1] * len(codes)] * 2, np.bool_), np.array(codes))


def test_every_row_is_of_one_kind_at_every_party() -> None:
    """Six rows: all parties' with a label and without; bank and shop's; bank's alone; the shop's
    alone; bank and gym's without a label."""
    has = [[1, 1, 1, 1, 0, 1], [1, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1]]
    rows = kinds([0, -1, 1, 1, -1, -1], has)
    assert rows.aligned.tolist() == [0]
    assert rows.further.tolist() == [2]
    assert [rows.further_of(m).tolist() for m in range(3)] == [[2], [2], []]
    assert [rows.own(m).tolist() for m in range(3)] == [[1, 3, 5], [1, 4], [1, 5]]


def test_a_label_of_a_row_that_the_first_party_lacks_is_not_learnt_from() -> None:
    rows = kinds([0, 1], [[1, 0], [1, 1]])
    assert rows.aligned.tolist() == [0]
    assert not len(rows.further)


def test_without_a_labelled_row_that_all_have_it_is_told() -> None:
    with pytest.raises(UserError, match="no row that all parties have is labelled"):
        kinds([0, 1], [[1, 1], [0, 0]])


@pytest.mark.parametrize(
    ("present", "says"), [({"gym": [True] * 4}, "'gym'"), ({"shop": [True]}, "4 entries")]
)
def test_what_does_not_say_who_has_a_row_is_told(present: dict[str, list[bool]], says: str) -> None:
    with pytest.raises(UserError, match=says):
        who_has({"bank": BANK, "shop": SHOP}, present)


def test_labelled_rows_are_aligned_and_all_others_are_the_pool() -> None:
    encoder, table = prepare("bank", BANK, BANK.slice(2), kinds([0, 1, -1, -1]), 0)
    assert len(table.aligned) == 2
    assert len(table.pool) == 4  # two without a label, two that only the bank has
    assert not len(table.query)
    assert (encode(encoder, BANK.slice(0, 2), "bank") == table.aligned).all()


def test_without_other_rows_the_labelled_ones_are_the_pool() -> None:
    _, table = prepare("shop", SHOP, None, kinds([0, 1, 0, 1]), 0)
    assert (table.pool == table.aligned).all()


def test_a_column_that_went_missing_is_named() -> None:
    encoder, _ = prepare("bank", BANK, None, kinds([0, 1, 0, 1]), 0)
    with pytest.raises(UserError, match="no column 'city'"):
        encode(encoder, BANK.select(["age"]), "bank")
    with pytest.raises(UserError, match="the pool has no column 'city'"):
        prepare("bank", BANK, BANK.select(["age"]), kinds([0, 1, 0, 1]), 0)


def test_images_keep_their_shape_and_another_shape_is_refused() -> None:
    images = np.random.default_rng(0).integers(0, 255, (4, 1, 8, 8)).astype(np.uint8)
    encoder, table = prepare("camera", images, None, kinds([0, 1, 0, 1]), 0)
    assert table.aligned.shape == (4, 1, 8, 8)
    with pytest.raises(UserError, match="images of the shape"):
        encode(encoder, images[..., :4], "camera")


def test_what_was_guessed_or_left_out_of_a_frame_is_warned_of() -> None:
    n = 60
    table = pa.table(
        {
            "amount": [f"1,{100 + i}" for i in range(n)],
            "note": [f"note {chr(65 + i)}{i}x" for i in range(n)],
            "x": [float("inf"), *range(n - 1)],
        }
    )
    kinds = RowKinds.of(np.ones((1, n), np.bool_), np.arange(n) % 2)
    with pytest.warns(UserWarning, match="bank: column") as caught:
        encoder, _ = prepare("bank", table, None, kinds, 0)
    lines = " ".join(str(line.message) for line in caught)
    assert "bank: column 'amount' could be written with a decimal comma" in lines
    assert "bank: column 'x' 1 infinite values count as missing" in lines
    assert "bank: column 'note' is not used: free text" in lines
    assert encoder.columns == ["amount", "x"]


def test_labels_that_differ_in_case_only_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="'Yes' and 'yes' are different classes"):
        encode_labels(["Yes", "no", "yes"], 3)
