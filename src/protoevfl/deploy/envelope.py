"""The envelope around every message between companies: which run, which round, from whom, to whom.

    frame = b"PEV1" | header length (4 bytes) | header (JSON) | body (a message, see messages.py)

The rounds of a run are numbered 1, 2, ... at each party. A party answers the next round; it repeats
its stored answer when the same request of its last round comes again (a reconnect); everything else
is a replay, a reorder or a gap and is refused. Who sent a frame is known from the sender's
certificate; the header must agree with it.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

MAGIC = b"PEV1"
MAX_HEADER = 1 << 14
MAX_BODY = 256 << 20
MAX_MISSED = 1_000_000  # rounds; no job has more
KINDS = ("hello", "welcome", "align", "request", "reply", "finish", "refusal")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class EnvelopeError(Exception):
    """A frame that must not be used; the text says why."""


@dataclass(frozen=True)
class Envelope:
    """The header of a frame."""

    kind: str
    run: str
    spec: str  # digest of the job's specification
    sender: str
    to: str
    round: int
    sha256: str = ""  # of the body
    missed: tuple[int, ...] = ()  # rounds this party was left out of since its last answer
    note: str = ""  # why a refusal was made


def pack(envelope: Envelope, body: bytes = b"") -> bytes:
    """The frame; the body's checksum is filled in."""
    facts = {
        **asdict(envelope),
        "sha256": hashlib.sha256(body).hexdigest(),
        "missed": _spans(envelope.missed),
    }
    header = json.dumps(facts, sort_keys=True).encode()
    if len(header) > MAX_HEADER:
        raise EnvelopeError(f"header of {len(header)} bytes, over the limit of {MAX_HEADER}")
    return MAGIC + len(header).to_bytes(4, "big") + header + body


def unpack(frame: bytes, max_body: int = MAX_BODY) -> tuple[Envelope, bytes]:
    """(header, body), or EnvelopeError; sizes are checked before anything is parsed or copied."""
    if not isinstance(frame, bytes | bytearray | memoryview):
        raise EnvelopeError(f"a frame must be bytes, not {type(frame).__name__}")
    if len(frame) < 8 or bytes(frame[:4]) != MAGIC:
        raise EnvelopeError("not a frame of this version")
    length = int.from_bytes(frame[4:8], "big")
    if length > min(MAX_HEADER, len(frame) - 8):
        raise EnvelopeError("the header is longer than the frame or the limit")
    size = len(frame) - 8 - length
    if size > max_body:
        raise EnvelopeError(f"message of {size:,} bytes, over the limit of {max_body:,}")
    envelope = _header(bytes(frame[8 : 8 + length]))
    body = bytes(frame[8 + length :])
    if hashlib.sha256(body).hexdigest() != envelope.sha256:
        raise EnvelopeError("the message was damaged on its way: its checksum does not fit")
    return envelope, body


def _header(data: bytes) -> Envelope:
    try:
        facts = json.loads(data.decode())
        facts["missed"] = _rounds(facts["missed"])
        envelope = Envelope(**facts)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise EnvelopeError("the header is not that of a frame") from None
    for field in fields(Envelope):
        _check(field.name, getattr(envelope, field.name))
    return envelope


def _spans(rounds: Sequence[int]) -> list[list[int]]:
    """Rounds as [first, last] of every unbroken row of them: a long absence is one.

    >>> _spans((3, 4, 5, 9))
    [[3, 5], [9, 9]]
    """
    spans: list[list[int]] = []
    for number in rounds:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return spans


def _rounds(spans: Any) -> tuple[int, ...]:
    """The inverse of `_spans`; ValueError or TypeError for anything else, before it takes
    memory."""
    if not all(_whole(first) and _whole(last) and first <= last for first, last in spans):
        raise ValueError("not spans")
    if sum(last - first + 1 for first, last in spans) > MAX_MISSED:
        raise ValueError("too many rounds")
    return tuple(number for first, last in spans for number in range(first, last + 1))


def _check(name: str, value: Any) -> None:
    if name in ("run", "sender", "to"):
        good = isinstance(value, str) and _NAME.fullmatch(value) is not None
    elif name == "round":
        good = _whole(value)
    elif name == "missed":
        good = True  # `_rounds` has looked
    elif name == "kind":
        good = value in KINDS
    else:
        good = isinstance(value, str) and len(value) <= 1000
    if not good:
        raise EnvelopeError(f"the header field {name!r} is not valid")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def place(envelope: Envelope, last: int, answered: str) -> Literal["new", "repeat"]:
    """Is this the next round, or the last one again? Anything else is refused.

    `last` is the last round this party answered, `answered` the checksum of its request.

    >>> ask = Envelope("request", "r", "s", "bank", "shop", round=5, sha256="aa")
    >>> place(ask, last=4, answered=""), place(ask, last=5, answered="aa")
    ('new', 'repeat')
    """
    if envelope.round == last:
        if envelope.sha256 == answered:
            return "repeat"
        raise EnvelopeError(
            f"round {last} was already answered for another request: replay refused"
        )
    if envelope.round < last:
        raise EnvelopeError(
            f"round {envelope.round} came after round {last}: replay or reorder refused"
        )
    if gap := sorted(set(range(last + 1, envelope.round)) - set(envelope.missed)):
        rounds = ", ".join(f"{a} to {b}" if a < b else str(a) for a, b in _spans(gap)[:5])
        raise EnvelopeError(
            f"round {envelope.round} came after round {last}: rounds {rounds} are not accounted for"
        )
    return "new"
