"""Alignment between companies: the active party with each other one, over the same encrypted
channel, end to end.

    step 1, 2, 3   private set intersection of the two files (rows/align.py with one passive party)
    step 4         when all pairs are known: which rows of the pair are for what, as places in the pair's order

A passive party learns which of its rows the active party has, and of those: which have a label and
all parties share (they train), which of these are kept aside, which have a label and some parties
share, which are to be predicted. Both sides keep their result in their run folder and show its
keyed hash before anything else happens; where the hashes differ (a crash in the middle), that pair
is aligned again with fresh keys.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from protoevfl.deploy import durable
from protoevfl.errors import UserError
from protoevfl.pipeline.prepare import PartyRows, Places, Sharing
from protoevfl.rows.align import Active, Passive
from protoevfl.rows.align_wire import AlignmentError
from protoevfl.rows.alignment import Alignment, prove, verify
from protoevfl.rows.ids import Ids
from protoevfl.rows.psi import curve

SETUP, RESPOND, SELECT, USES = 1, 2, 3, 4
PROOF, PARTS = 32, 4  # bytes; lists of places
Ask = Callable[[str, int, bytes], bytes]  # (party, step, message) -> message


class Source(Protocol):
    """A file with ids, and how few rows in common are too few."""

    @property
    def minimum(self) -> int: ...

    def ids(self) -> Ids: ...


@dataclass(frozen=True)
class Pair:
    """One side of what two companies share, kept in `folder`."""

    folder: Path

    def load(self) -> Alignment | None:
        return Alignment.load(self.folder) if (self.folder / "alignment.json").exists() else None

    def save(self, alignment: Alignment) -> None:
        """A new alignment; what its rows are for is not known yet."""
        with suppress(FileNotFoundError):
            self._uses.unlink()
        alignment.save(self.folder)

    def keep_uses(self, message: bytes) -> None:
        durable.write(self._uses, message)

    def uses(self) -> bytes | None:
        """The message of step 4, as it was sent."""
        return self._uses.read_bytes() if self._uses.exists() else None

    @property
    def digest(self) -> str:
        """Equal at both sides where they hold the same rows in the same order for the same uses; ""
        before that."""
        alignment = self.load()
        uses = self.uses()
        return (
            "" if alignment is None or uses is None else f"{alignment.digest}:{uses[:PROOF].hex()}"
        )

    def rows(self, ids: Ids) -> PartyRows:
        """This party's rows by their use; its file must not have changed since."""
        alignment = self.load()
        uses = self.uses()
        if alignment is None or uses is None:
            raise UserError("this run's rows are not aligned yet")
        verify(alignment, ids)
        places = unpack_uses(uses, len(alignment.rows))
        return PartyRows(*(alignment.rows[part] for part in _parts(places)))

    @property
    def _uses(self) -> Path:
        return self.folder / "uses.bin"


def pack_uses(places: PartyRows, alignment: Alignment, ids: Ids) -> bytes:
    """The message of step 4: the active party's proof, four counts, places in the pair's order."""
    parts = _parts(places)
    counts = np.array([len(part) for part in parts])
    proof = _proof("active", places, alignment, ids)
    return proof + b"".join(part.astype(">u4").tobytes() for part in (counts, *parts))


def unpack_uses(message: bytes, rows: int) -> PartyRows:
    """The places that a message names; each is one of the pair's `rows`, and is named once."""
    numbers = np.frombuffer(
        message[PROOF : len(message) - (len(message) - PROOF) % 4], dtype=">u4"
    ).astype(np.int64)
    counts, places = numbers[:PARTS], numbers[PARTS:]
    whole = (
        len(message) == PROOF + 4 * len(numbers)
        and len(counts) == PARTS
        and counts.sum() == len(places)
    )
    if not whole or (places >= rows).any() or len(np.unique(places)) != len(places):
        raise AlignmentError(
            "the uses name rows that were never aligned; refuse this run and ask the sender"
        )
    return PartyRows(*np.split(places, np.cumsum(counts[:-1])))


def _parts(rows: PartyRows) -> tuple[Places, ...]:
    return rows.aligned, rows.kept_aside, rows.further, rows.asked


def _proof(role: str, places: PartyRows, alignment: Alignment, ids: Ids) -> bytes:
    """(32 bytes) keyed hash of the ids in the order of their uses; the counts tell one use from the
    next."""
    spelt = dict(zip(ids.rows.tolist(), ids.values, strict=True))
    parts = _parts(places)
    values = [spelt[row] for row in alignment.rows[np.concatenate(parts)].tolist()]
    return prove(alignment.key, f"{role} uses {[len(part) for part in parts]}", values)


@dataclass(frozen=True)
class Gate:
    """A party's limits on alignment: each function enters its step in the ledger or raises."""

    begins: Callable[[], None]
    asked: Callable[[int], None]  # so many ids
    query_rows: int  # most rows to be predicted or measured


@dataclass
class PassiveSide:
    """Answers the active party's alignment messages with this party's ids."""

    name: str
    source: Callable[[], Source]
    pair: Pair
    gate: Gate
    talk: Passive | None = None
    request: bytes = b""  # SHA-256 of the one that was answered in this talk
    open: ExitStack = field(default_factory=ExitStack)

    @property
    def digest(self) -> str:
        return self.pair.digest

    def handle_bytes(self, step: int, request: bytes) -> bytes:
        if step == SETUP:
            self.gate.begins()
            return self._begin().setup()
        if step == USES:
            return self._uses(request)
        if step not in (RESPOND, SELECT) or self.talk is None:
            raise UserError("an alignment message out of order, or of an unknown step")
        if step == RESPOND:
            self._enter(request, self.talk)
            return self.talk.respond(request)
        alignment, confirmation = self.talk.select(request)
        self.pair.save(alignment)
        self.talk = None
        self.open.close()
        return confirmation

    def _begin(self) -> Passive:
        source = self.source()
        ids = source.ids()
        on = self.open.enter_context(curve(0, len(ids.values)))
        self.talk, self.request = Passive(self.name, ids, on, source.minimum), b""
        return self.talk

    def _enter(self, request: bytes, talk: Passive) -> None:
        """One list of ids per alignment; the same one may come again where an answer was lost."""
        digest = hashlib.sha256(request).digest()
        if not self.request:
            self.gate.asked(talk.peer_ids(request))
            self.request = digest
        elif digest != self.request:
            raise AlignmentError("a second list of ids in one alignment is not answered")

    def _uses(self, message: bytes) -> bytes:
        alignment = self.pair.load()
        if alignment is None:
            raise UserError("an alignment message out of order")
        ids = self.source().ids()
        verify(alignment, ids)
        places = unpack_uses(message, len(alignment.rows))
        if len(places.kept_aside) + len(places.asked) > self.gate.query_rows:
            raise AlignmentError(
                f"{len(places.kept_aside) + len(places.asked):,} rows to be predicted or measured, "
                f"at most {self.gate.query_rows:,} (max_query_rows in policy.toml)"
            )
        if not hmac.compare_digest(message[:PROOF], _proof("active", places, alignment, ids)):
            raise AlignmentError(
                "the active party's digest does not fit the rows it names; align again"
            )
        self.pair.keep_uses(message)
        return _proof("passive", places, alignment, ids)


def align_pair(name: str, other: str, ids: Ids, minimum: int, ask: Ask) -> Alignment:
    """The active party's side of steps 1 to 3 with one other party."""
    with curve(0, len(ids.values)) as on:
        side = Active(name, ids, on, minimum)
        request = side.request(other, ask(other, SETUP, b""))
        side.receive(other, ask(other, RESPOND, request))
        (selection,) = side.select().values()
        side.confirm(other, ask(other, SELECT, selection))
        return side.result()


def send_uses(other: str, places: PartyRows, alignment: Alignment, ids: Ids, ask: Ask) -> bytes:
    """The active party's side of step 4; the message, once the other party has proven that it holds
    the same."""
    message = pack_uses(places, alignment, ids)
    if not hmac.compare_digest(
        ask(other, USES, message), _proof("passive", places, alignment, ids)
    ):
        raise AlignmentError(f"{other} does not hold the same rows for the same uses; align again")
    return message


def sharing(alignments: Sequence[Alignment | None], ids: Ids) -> Sharing:
    """Who has which row of the active party's file, as places in the order of each pair; None
    shares nothing."""
    place = np.full((len(alignments), ids.counts.input), -1, np.int64)
    for line, alignment in zip(place, alignments, strict=True):
        if alignment is not None:
            verify(alignment, ids)
            line[alignment.rows] = np.arange(len(alignment.rows))
    return Sharing(place, {})
