"""Alignment as two companies do it: same rows, same order, same uses, proven; a crash in the middle
is noticed."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("private_set_intersection")

from protoevfl.deploy.aligning import (
    PROOF,
    RESPOND,
    SELECT,
    SETUP,
    USES,
    Gate,
    Pair,
    PassiveSide,
    align_pair,
    pack_uses,
    send_uses,
    sharing,
    unpack_uses,
)  # fmt: skip
from protoevfl.deploy.row_ledger import LimitError
from protoevfl.errors import UserError
from protoevfl.pipeline.prepare import NOTHING, PartyRows, Places
from protoevfl.rows.align import Active
from protoevfl.rows.align_wire import AlignmentError
from protoevfl.rows.ids import IdRules, Ids, collect
from protoevfl.rows.psi import curve

BANK = [f"C{i}" for i in range(30)]
SHOP = [f"C{i}" for i in range(40, 10, -1)]  # C11 to C29 are in both


def ids_of(names: list[str]) -> Ids:
    return collect([names], IdRules(), "rows")


@dataclass
class Names:
    """A file of nothing but ids."""

    names: list[str]
    minimum: int = 5

    def ids(self) -> Ids:
        return ids_of(self.names)


@dataclass
class Two:
    """The bank asks the shop; `bank` and `shop` are what each keeps."""

    folder: Path
    minimum: int = 5
    query_rows: int = 9

    def __post_init__(self) -> None:
        self.bank, self.shop = Pair(self.folder / "bank"), Pair(self.folder / "shop")
        self.entered: list[int] = []  # numbers of ids asked about; -1 begins an alignment
        gate = Gate(lambda: self.entered.append(-1), self.entered.append, self.query_rows)
        self.side = PassiveSide("shop", lambda: Names(SHOP, self.minimum), self.shop, gate)

    def ask(self, name: str, step: int, message: bytes) -> bytes:
        return self.side.handle_bytes(step, message)

    def align(self) -> None:
        self.bank.save(align_pair("bank", "shop", ids_of(BANK), 5, self.ask))

    def use(self, places: PartyRows) -> None:
        alignment = self.bank.load()
        assert alignment is not None
        self.bank.keep_uses(send_uses("shop", places, alignment, ids_of(BANK), self.ask))


def uses(
    aligned: list[int], kept_aside: list[int], further: list[int], asked: list[int]
) -> PartyRows:
    return PartyRows(*(np.array(part, np.int64) for part in (aligned, kept_aside, further, asked)))


def people(rows: Places, names: list[str]) -> list[str]:
    return [names[row] for row in rows.tolist()]


def test_both_sides_hold_the_same_people_in_the_same_order_for_the_same_uses(
    tmp_path: Path,
) -> None:
    two = Two(tmp_path)
    two.align()
    two.use(uses([3, 1], [0], [7, 5], [2]))
    assert two.bank.digest == two.shop.digest != ""
    bank, shop = two.bank.rows(ids_of(BANK)), two.shop.rows(ids_of(SHOP))
    for part in ("aligned", "kept_aside", "further", "asked"):
        assert people(getattr(bank, part), BANK) == people(getattr(shop, part), SHOP)
    assert [len(part) for part in (shop.aligned, shop.kept_aside, shop.further, shop.asked)] == [
        2,
        1,
        2,
        1,
    ]


def test_the_active_party_knows_who_shares_which_row_and_the_place_in_the_pair(
    tmp_path: Path,
) -> None:
    two = Two(tmp_path)
    two.align()
    alignment = two.bank.load()
    shared = sharing([alignment, None], ids_of(BANK))
    assert shared.place.shape == (2, len(BANK))
    assert np.flatnonzero(shared.place[0] >= 0).tolist() == list(range(11, 30))
    assert (shared.place[1] < 0).all()
    shop = two.shop.load()
    assert shop is not None
    for row in range(11, 30):
        assert SHOP[shop.rows[shared.place[0, row]]] == BANK[row]


def test_what_the_rows_are_for_belongs_to_the_digest(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.align()
    assert two.shop.digest == ""
    two.use(uses([0, 1], [], [], []))
    first = two.shop.digest
    two.use(uses([0], [1], [], []))
    assert two.shop.digest not in ("", first)
    two.align()
    assert two.bank.digest == two.shop.digest == ""  # the uses were those of another order


def test_fewer_rows_than_the_minimum_of_either_side_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AlignmentError, match="only 19 rows in common, fewer than the minimum 20"):
        Two(tmp_path, minimum=20).align()
    assert Pair(tmp_path / "shop").load() is None


def test_messages_out_of_order_are_refused(tmp_path: Path) -> None:
    two = Two(tmp_path)
    for step in (RESPOND, SELECT, USES, 0, 5, 11):
        with pytest.raises(UserError):
            two.side.handle_bytes(step, b"")
    two.side.handle_bytes(SETUP, b"")
    with pytest.raises(UserError):
        two.side.handle_bytes(RESPOND, b"not a request")
    assert two.side.digest == ""


@pytest.mark.parametrize(
    "places", [uses([19], [], [], []), uses([3, 3], [], [], []), uses([3], [3], [], [])],
    ids=["beyond the pair", "twice", "for two uses"],
)  # fmt: skip
def test_uses_of_rows_that_were_not_aligned_are_refused(places: PartyRows) -> None:
    parts = [places.aligned, places.kept_aside, places.further, places.asked]
    counts = np.array([len(part) for part in parts])
    message = b"p" * PROOF + b"".join(part.astype(">u4").tobytes() for part in (counts, *parts))
    with pytest.raises(AlignmentError, match="never aligned"):
        unpack_uses(message, 19)


@pytest.mark.parametrize("cut", [0, 10, PROOF, PROOF + 3, PROOF + 16, -4, -1])
def test_uses_cut_short_are_refused(tmp_path: Path, cut: int) -> None:
    two = Two(tmp_path)
    two.align()
    alignment = two.bank.load()
    assert alignment is not None
    message = pack_uses(uses([1, 2], [0], [], [5]), alignment, ids_of(BANK))
    with pytest.raises(AlignmentError, match="never aligned"):
        two.side.handle_bytes(USES, message[:cut])
    assert two.shop.uses() is None


def test_uses_that_the_sender_cannot_prove_are_refused(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.align()
    alignment = two.bank.load()
    assert alignment is not None
    message = pack_uses(uses([1, 2], [0], [], []), alignment, ids_of(BANK))
    swapped = (
        message[: PROOF + 16]
        + message[PROOF + 20 : PROOF + 24]
        + message[PROOF + 16 : PROOF + 20]
        + message[-4:]
    )
    with pytest.raises(AlignmentError, match="digest does not fit"):
        two.side.handle_bytes(USES, swapped)
    with pytest.raises(AlignmentError, match="does not hold the same rows"):
        send_uses(
            "shop",
            uses([1], [], [], []),
            alignment,
            ids_of(BANK),
            lambda name, step, message: b"yes",
        )


def test_a_file_that_changed_after_alignment_is_refused(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.align()
    two.use(PartyRows(np.arange(3), NOTHING, NOTHING, NOTHING))
    with pytest.raises(UserError, match="no longer those that were aligned"):
        two.shop.rows(ids_of(SHOP[::-1]))
    with pytest.raises(UserError, match="no longer those that were aligned"):
        sharing([two.bank.load()], ids_of(BANK[::-1]))


def test_a_party_that_was_not_aligned_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not aligned yet"):
        Pair(tmp_path).rows(ids_of(SHOP))


# ------------------------------------------------------------ limits (threats D5)


def test_every_alignment_and_every_list_of_ids_is_entered_before_it_is_answered(
    tmp_path: Path,
) -> None:
    two = Two(tmp_path)
    two.align()
    two.align()
    assert two.entered == [-1, len(BANK)] * 2


def test_what_the_party_will_not_answer_is_not_answered(tmp_path: Path) -> None:
    two = Two(tmp_path)

    def refuse(ids: int) -> None:
        raise LimitError(f"{ids} ids")

    two.side.gate = replace(two.side.gate, asked=refuse)
    with pytest.raises(LimitError, match="30 ids"):
        two.align()
    assert two.shop.load() is None


def test_one_alignment_answers_one_list_of_ids(tmp_path: Path) -> None:
    two = Two(tmp_path)
    with curve(0, len(BANK)) as on:
        sides = [Active("bank", ids_of(names), on, 5) for names in (BANK, SHOP)]
        setup = two.ask("shop", SETUP, b"")
        first, second = (side.request("shop", setup) for side in sides)
        answer = two.ask("shop", RESPOND, first)
        assert two.ask("shop", RESPOND, first) == answer  # it was lost on its way
        with pytest.raises(AlignmentError, match="a second list of ids"):
            two.ask("shop", RESPOND, second)
    assert two.entered == [-1, len(BANK)]


def test_too_many_rows_to_be_predicted_are_not_taken(tmp_path: Path) -> None:
    two = Two(tmp_path, query_rows=2)
    two.align()
    with pytest.raises(AlignmentError, match=r"3 rows to be predicted or measured, at most 2"):
        two.use(uses([3], [0, 1], [], [2]))
    two.use(uses([3, 1], [0], [], [2]))
