"""Whatever bytes arrive, decoding gives the payload that was sent or an AlignmentError, nothing
else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.rows.align_wire import (
    AlignmentError,
    decode,
    encode,
    pack_selection,
    unpack_selection,
)
from protoevfl.rows.ids import IdRules
from protoevfl.rows.psi_worker import POINT

RULES = IdRules().digest()
KINDS = ("setup", "request", "response", "selection", "confirm")


@given(st.sampled_from(KINDS), st.binary(max_size=300))
def test_any_bytes(kind: str, message: bytes) -> None:
    with pytest.raises(AlignmentError):
        decode(message, kind, RULES)


@given(st.integers(0, 5), st.integers(0, 5 * POINT + 45), st.integers(1, 255))
def test_a_flipped_head_or_cut_message_is_refused_or_the_points_are_whole(
    n: int, at: int, flip: int
) -> None:
    message = bytearray(encode("setup", RULES, b"\2" * POINT * n))
    at %= len(message)
    message[at] ^= flip
    if at < len(message) - POINT * n:
        with pytest.raises(AlignmentError):
            decode(bytes(message), "setup", RULES)
    else:
        assert len(decode(bytes(message), "setup", RULES)) == POINT * n
    if at:
        with pytest.raises(AlignmentError):
            decode(bytes(message[:at]), "setup", RULES)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=9))
def test_selection_round_trip(places: list[int]) -> None:
    packed = pack_selection(b"k" * 32, b"p" * 32, np.array(places, np.int64))
    key, proof, again = unpack_selection(
        decode(encode("selection", RULES, packed), "selection", RULES)
    )
    assert (key, proof, again.tolist()) == (b"k" * 32, b"p" * 32, places)
