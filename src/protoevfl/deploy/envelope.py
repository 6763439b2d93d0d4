"""The header of every frame between companies: which run, which round, from whom, to whom. seal.py
signs it and encrypts what it carries.

The rounds of a run are numbered 1, 2, ... at each party. A party answers the next round; it repeats
its stored answer when the same request of its last round comes again (a reconnect); everything else
is a replay, a reorder or a gap and is refused. Within a session (one process of the party) the
counter of requests only rises, so a frame recorded by whoever relays it is of no use later; an
answer names the request it answers.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

MAX_HEADER = 1 << 15
MAX_BODY = 256 << 20
KINDS = ("hello", "welcome", "align", "request", "reply", "finish", "refusal")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
Spans = tuple[tuple[int, int], ...]  # rounds as (first, last) of every unbroken row of them


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
    session: str = ""  # of the party's process, as its welcome named it
    counter: int = 0  # of a request within the session; only rises
    answers: str = ""  # digest of the request that this is the answer to
    missed: Spans = ()  # rounds this party was left out of since its last answer


def to_facts(envelope: Envelope) -> dict[str, Any]:
    """The fields as plain values."""
    return {**asdict(envelope), "missed": [list(span) for span in envelope.missed]}


def from_facts(facts: Any) -> Envelope:
    """The inverse; EnvelopeError for anything else."""
    try:
        envelope = Envelope(**{**facts, "missed": _checked(facts["missed"])})
    except (ValueError, TypeError, KeyError):
        raise EnvelopeError("the header is not that of a frame") from None
    for field in fields(Envelope):
        _check(field.name, getattr(envelope, field.name))
    return envelope


def request_digest(body: bytes) -> str:
    """What tells a request from another one of the same round."""
    return hashlib.sha256(body).hexdigest()


def spans(rounds: Sequence[int]) -> Spans:
    """Rising rounds in short: a long absence is one span.

    >>> spans((3, 4, 5, 9))
    ((3, 5), (9, 9))
    """
    shortened: list[tuple[int, int]] = []
    for number in rounds:
        if shortened and number == shortened[-1][1] + 1:
            shortened[-1] = (shortened[-1][0], number)
        else:
            shortened.append((number, number))
    return tuple(shortened)


def _checked(missed: Any) -> Spans:
    """Spans as they came; ValueError or TypeError for anything else. They are never written out: a
    header of 20 bytes could name a billion rounds."""
    if not all(_whole(first) and _whole(last) and first <= last for first, last in missed):
        raise ValueError("not spans")
    return tuple((first, last) for first, last in missed)


def _not_in(missed: Spans, first: int, last: int) -> Spans:
    """The rounds from `first` to `last` that no span holds."""
    gaps = []
    for begin, end in sorted(missed):
        if first > last:
            break
        if begin > first:
            gaps.append((first, min(begin - 1, last)))
        first = max(first, end + 1)
    return (*gaps, (first, last)) if first <= last else tuple(gaps)


def _check(name: str, value: Any) -> None:
    if name in ("run", "sender", "to"):
        good = isinstance(value, str) and _NAME.fullmatch(value) is not None
    elif name in ("round", "counter"):
        good = _whole(value)
    elif name == "missed":
        good = True  # `_checked` has looked
    elif name == "kind":
        good = value in KINDS
    else:
        good = isinstance(value, str) and len(value) <= 1000
    if not good:
        raise EnvelopeError(f"the header field {name!r} is not valid")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def place(envelope: Envelope, digest: str, last: int, answered: str) -> Literal["new", "repeat"]:
    """Is this the next round, or the last one again? Anything else is refused.

    digest     of this request's body
    last       the last round this party answered
    answered   the digest of that request

    >>> ask = Envelope("request", "r", "s", "bank", "shop", round=5)
    >>> place(ask, "aa", last=4, answered=""), place(ask, "aa", last=5, answered="aa")
    ('new', 'repeat')
    """
    if envelope.round == last:
        if digest == answered:
            return "repeat"
        raise EnvelopeError(
            f"round {last} was already answered for another request: replay refused"
        )
    if envelope.round < last:
        raise EnvelopeError(
            f"round {envelope.round} came after round {last}: replay or reorder refused"
        )
    if gaps := _not_in(envelope.missed, last + 1, envelope.round - 1):
        rounds = ", ".join(f"{a} to {b}" if a < b else str(a) for a, b in gaps[:5])
        raise EnvelopeError(
            f"round {envelope.round} came after round {last}: rounds {rounds} are not accounted for"
        )
    return "new"
