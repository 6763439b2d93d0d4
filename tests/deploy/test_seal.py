"""Sealed frames: the receiver reads what the sender wrote; every other change, cut or reader fails."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from protoevfl.deploy.envelope import Envelope, EnvelopeError
from protoevfl.deploy.seal import MAGIC, Keys, seal, signed_digest, unseal
from protoevfl.errors import UserError
from tests.deploy.keyring import keys, put

ASK = Envelope("request", "run-1", "digest", "bank", "shop", round=5, session="s", counter=3)
BODY = b"some body"


def frame() -> bytes:
    return seal(keys("bank"), ASK, BODY, keys("shop").certificate)


def test_the_receiver_reads_what_the_sender_wrote() -> None:
    sent = frame()
    assert BODY not in sent
    opened = unseal(keys("shop"), sent)
    assert (opened.envelope, opened.body) == (ASK, BODY)
    assert opened.certificate == keys("bank").certificate
    assert opened.digest == signed_digest(sent)
    assert frame() != sent  # a fresh key every time


def test_every_flipped_bit_and_every_cut_is_refused() -> None:
    sent, rng = frame(), random.Random(0)
    for _ in range(300):
        damaged = bytearray(sent)
        at = rng.randrange(len(sent))
        damaged[at] ^= 1 << rng.randrange(8)
        try:
            opened = unseal(keys("shop"), bytes(damaged))
        except EnvelopeError:
            continue
        # JSON has several spellings of the same text; nothing that means something changes
        assert (opened.envelope, opened.body) == (ASK, BODY)
    for size in range(0, len(sent), 7):
        with pytest.raises(EnvelopeError):
            unseal(keys("shop"), sent[:size])


def test_sizes_are_checked_first() -> None:
    with pytest.raises(EnvelopeError, match="over the limit of 20"):
        unseal(keys("shop"), frame(), max_body=4)
    with pytest.raises(EnvelopeError, match="longer than the frame"):
        unseal(keys("shop"), MAGIC + (1 << 31).to_bytes(4, "big") + b"{}")
    with pytest.raises(EnvelopeError, match="must be bytes"):
        unseal(keys("shop"), {"not": "bytes"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "header",
    [b"[]", b"3", b"{}", b'{"signed": 3, "signature": ""}', b"[" * 30_000,
     b'{"signed": "{}", "signature": ""}', json.dumps({"signed": "[" * 20_000}).encode()],
    ids=lambda h: repr(h[:20]),
)  # fmt: skip
def test_what_is_no_signed_frame_is_refused(header: bytes) -> None:
    with pytest.raises(EnvelopeError):
        unseal(keys("shop"), MAGIC + len(header).to_bytes(4, "big") + header)


@pytest.mark.parametrize(
    ("signer", "word"),
    [
        (keys("tele"), "the certificate of tele cannot sign for bank"),
        (keys("bank", "crooks"), "not of this project's authority"),
        (keys("bank", days=-1), "not valid today"),
        (replace(keys("tele"), certificate=keys("bank").certificate), "not that of bank"),
    ],
)
def test_only_the_key_of_a_valid_certificate_signs(signer: Keys, word: str) -> None:
    sent = seal(signer, ASK, BODY, keys("shop").certificate)
    with pytest.raises(EnvelopeError, match=word):
        unseal(keys("shop"), sent)


def test_only_a_greeting_and_a_refusal_may_be_in_clear() -> None:
    with pytest.raises(ValueError, match="never sent in clear"):
        seal(keys("bank"), ASK, BODY)
    for kind in ("hello", "refusal"):
        sent = seal(keys("bank"), replace(ASK, kind=kind), BODY)
        assert unseal(keys("shop"), sent).body == BODY


def test_a_kit_without_its_key_says_so(tmp_path: Path) -> None:
    put(tmp_path, "shop")
    assert Keys.of_kit(tmp_path, "shop") == keys("shop")
    (tmp_path / "startup" / "client.key").unlink()
    with pytest.raises(UserError, match=r"client\.key.*ask for the kit again"):
        Keys.of_kit(tmp_path, "shop")
