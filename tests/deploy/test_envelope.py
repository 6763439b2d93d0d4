"""Envelopes: what was packed comes out; everything else is refused before it is used."""

import json
import random
from dataclasses import replace

import pytest

from protoevfl.deploy.envelope import MAGIC, Envelope, EnvelopeError, pack, place, unpack

ASK = Envelope("request", "run-1", "digest", "bank", "shop", round=5)


def test_round_trip() -> None:
    envelope, body = unpack(pack(replace(ASK, missed=(3, 4)), b"hello"))
    assert body == b"hello"
    assert replace(envelope, sha256="") == replace(ASK, missed=(3, 4))


def test_every_flipped_bit_and_every_cut_is_refused() -> None:
    frame = pack(ASK, b"some body")
    rng = random.Random(0)
    for _ in range(300):
        damaged = bytearray(frame)
        place_ = rng.randrange(len(frame))
        damaged[place_] ^= 1 << rng.randrange(8)
        try:
            envelope, body = unpack(bytes(damaged))
        except EnvelopeError:
            continue
        # only a name or number in the header can change, and those are compared later
        assert body == b"some body"
        assert replace(envelope, sha256="") != ASK
    for size in range(len(frame)):
        with pytest.raises(EnvelopeError):
            unpack(frame[:size])


def test_sizes_are_checked_first() -> None:
    with pytest.raises(EnvelopeError, match="over the limit of 4"):
        unpack(pack(ASK, b"12345"), max_body=4)
    with pytest.raises(EnvelopeError, match="longer than the frame"):
        unpack(MAGIC + (1 << 31).to_bytes(4, "big") + b"{}")


@pytest.mark.parametrize(
    "change",
    [{"kind": "exec"}, {"run": "../../etc"}, {"sender": ""}, {"round": -1}, {"round": True}, {"round": 1.5},
     {"missed": ["x"]}, {"missed": 3}, {"missed": [3]}, {"missed": [[4, 3]]}, {"missed": [[-1, 3]]},
     {"missed": [[0, 2000000000]]}, {"missed": [[1, True]]}, {"missed": [[1, 2, 3]]},
     {"extra": 1}, {"note": "x" * 2000}, {"to": None}],
)  # fmt: skip
def test_strange_headers_are_refused(change: dict[str, object]) -> None:
    header = json.dumps({**ASK.__dict__, "missed": [], "sha256": "", **change}).encode()
    with pytest.raises(EnvelopeError):
        unpack(MAGIC + len(header).to_bytes(4, "big") + header)


def test_a_frame_must_be_bytes() -> None:
    with pytest.raises(EnvelopeError, match="must be bytes"):
        unpack({"not": "bytes"})  # type: ignore[arg-type]


def test_rounds_come_in_order_once() -> None:
    ask = replace(ASK, sha256="aa")
    assert place(ask, last=4, answered="zz") == "new"
    assert place(ask, last=5, answered="aa") == "repeat"
    for last, answered, word in (
        (5, "bb", "replay"),
        (6, "aa", "replay"),
        (3, "", "not accounted"),
    ):
        with pytest.raises(EnvelopeError, match=word):
            place(ask, last, answered)
    assert place(replace(ask, missed=(3, 4)), last=2, answered="") == "new"
    with pytest.raises(EnvelopeError):
        place(replace(ask, missed=(4,)), last=2, answered="")


def test_a_party_can_come_back_after_any_number_of_rounds() -> None:
    away = tuple(range(2, 500_000))
    frame = pack(replace(ASK, round=500_000, missed=away))
    assert len(frame) < 1000
    envelope, _ = unpack(frame)
    assert envelope.missed == away
    assert place(envelope, last=1, answered="") == "new"
    with pytest.raises(EnvelopeError, match="not accounted for"):
        place(envelope, last=0, answered="")


def test_rounds_missed_here_and_there_come_through() -> None:
    assert unpack(pack(replace(ASK, missed=(1, 2, 5, 7, 8))))[0].missed == (1, 2, 5, 7, 8)
