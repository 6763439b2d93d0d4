"""The bytes of the five alignment messages, and their checks; nothing else crosses while parties
align.

    magic "PEVA", version, kind (1 byte each) | rules digest (32) | payload size (8) | payload

The digest of the id rules is in every message: two sides that normalise differently stop at the
first one.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from protoevfl.errors import UserError
from protoevfl.rows.psi_worker import POINT

MAX_IDS = 50_000_000  # a message of more is refused before anything is allocated for it
_KINDS = {"setup": 1, "request": 2, "response": 3, "selection": 4, "confirm": 5}
_HEAD = struct.Struct(">4sBB32sQ")
_MAGIC, _VERSION = b"PEVA", 1
_PROOF = 32


class AlignmentError(UserError):
    """The parties cannot be aligned; nobody has learnt more than the message that was refused."""


def encode(kind: str, rules: str, payload: bytes) -> bytes:
    """One message; `rules` is `IdRules.digest()`."""
    return _HEAD.pack(_MAGIC, _VERSION, _KINDS[kind], bytes.fromhex(rules), len(payload)) + payload


def decode(message: bytes, kind: str, rules: str) -> bytes:
    """The payload of a message of the expected kind, whole and under the same id rules."""
    if len(message) < _HEAD.size:
        raise AlignmentError(f"the {kind} message is cut short")
    magic, version, number, sender_rules, size = _HEAD.unpack_from(message)
    if (magic, version) != (_MAGIC, _VERSION):
        raise AlignmentError(
            f"the {kind} message is of another program or version; use the same protoevfl at all "
            "parties"
        )
    if number != _KINDS[kind]:
        raise AlignmentError(f"a message arrived out of order: expected {kind}")
    if sender_rules.hex() != rules:
        raise AlignmentError(
            "the parties normalise ids differently; agree on casefold, id columns and version"
        )
    if size != len(message) - _HEAD.size:
        raise AlignmentError(f"the {kind} message is cut short")
    _check_size(kind, size)
    return message[_HEAD.size :]


def count_points(points: bytes) -> int:
    return len(points) // POINT


def pack_selection(key: bytes, proof: bytes, places: NDArray[np.int64]) -> bytes:
    """Digest key, the active party's proof, places (n,) as unsigned 32-bit numbers."""
    return key + proof + places.astype(">u4").tobytes()


def unpack_selection(payload: bytes) -> tuple[bytes, bytes, NDArray[np.int64]]:
    places = np.frombuffer(payload, dtype=">u4", offset=2 * _PROOF)
    return payload[:_PROOF], payload[_PROOF : 2 * _PROOF], places.astype(np.int64)


def _check_size(kind: str, size: int) -> None:
    if kind == "confirm":
        good = size == _PROOF
    elif kind == "selection":
        good = size >= 2 * _PROOF and size % 4 == 0 and size <= 4 * MAX_IDS
    else:
        good = size % POINT == 0 and size <= POINT * MAX_IDS
    if not good:
        raise AlignmentError(f"the {kind} message has an impossible size ({size} bytes)")
