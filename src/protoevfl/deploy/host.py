"""A party behind its border: every frame is checked, logged, answered once, and the answer is kept
before it leaves.

    frame -> whose key signed it? -> which run, session, round? -> allowed type? -> party -> ledger
    -> checkpoint on disk -> reply, for the asker's eyes only

A round that comes again is answered from the checkpoint, so a lost connection or a crash after the
answer costs nothing and trains nothing twice. If the party fails in the middle, it goes back to its
last checkpoint.
"""

import hashlib
import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from protoevfl.codec import MAX_HEADER
from protoevfl.deploy.audit_log import AuditLog
from protoevfl.deploy.checkpoints import (
    REPLY,
    Checkpoint,
    CheckpointStore,
    DamagedError,
    blob,
    party_state,
    unblob,
)
from protoevfl.deploy.durable import DiskError
from protoevfl.deploy.envelope import Envelope, EnvelopeError, place, request_digest
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.row_ledger import LimitError
from protoevfl.deploy.seal import Keys, Opened, seal, unseal
from protoevfl.deploy.spec import JobSpec
from protoevfl.messages import MessageError
from protoevfl.privacy.ledger import BudgetError
from protoevfl.rows.align_wire import AlignmentError


class Answering(Protocol):
    """A party that speaks bytes; its whole memory is in `state()`, what it was made of in
    `sources` ({what: SHA-256})."""

    sources: Mapping[str, str]

    def handle_bytes(self, request: bytes, name: str = "") -> bytes: ...
    def state(self) -> dict[str, Tensor]: ...
    def restore(self, state: dict[str, Tensor]) -> None: ...


class RefusedError(Exception):
    """This party will not answer; the text may be shown to the other side."""


class Aligning(Protocol):
    """The party's side of private set intersection."""

    @property
    def digest(self) -> str: ...  # keyed hash of the ordered common rows, "" before there are any

    def handle_bytes(self, step: int, request: bytes) -> bytes: ...


@dataclass
class PartyHost:
    """One party's side of one run. The party is made when it is first asked, after alignment."""

    make: Callable[[], Answering]
    keys: Keys
    spec: JobSpec
    policy: Policy
    store: CheckpointStore
    log: AuditLog
    aligner: Aligning | None = None
    keep: Callable[[dict[str, Tensor]], None] | None = None  # writes down what the party has learnt
    files: Callable[[], Mapping[str, str]] = dict  # SHA-256 of the files that the party is made of

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._party: Answering | None = None
        self.last, self.answered, self.reply = 0, "", b""
        # of this process: a frame recorded earlier cannot be used in it
        self.session, self.counter = secrets.token_hex(16), 0
        # the last frame's digest and its answer: a frame may arrive twice
        self._newest: tuple[bytes, bytes] | None = None
        self._found = self.store.latest()
        if self._found is not None:
            self.last = self._found.round
        if damaged := self.store.damaged():
            numbers = ", ".join(map(str, damaged))
            reason = f"checkpoint of round {numbers} is damaged; going on from round {self.last}"
            logging.getLogger(__name__).warning("%s of %s: %s", self.spec.run, self.name, reason)
            self.log.add("damaged", run=self.spec.run, round=self.last, reason=reason)

    @property
    def name(self) -> str:
        return self.keys.name

    @property
    def party(self) -> Answering:
        if self._party is None:
            self._check_same_job()
            self._check_same_sources(self.files())  # before anything stumbles over a changed file
            party = self.make()
            self._check_same_sources(party.sources)
            self._party = party
            if self._found is None:
                self._keep(0, "", b"")
            else:
                self._return_to(self._found)
                self.log.add("resume", run=self.spec.run, round=self.last)
        return self._party

    def _check_same_job(self) -> None:
        if self._found is not None and self._found.header.get("spec") != self.spec.digest():
            raise RefusedError(
                f"run {self.spec.run} was begun with another specification; give the new run a new "
                "name"
            )

    def _check_same_sources(self, sources: Mapping[str, str]) -> None:
        """The same files as when the run began, or it would become another run unnoticed."""
        before = {} if self._found is None else self._found.header.get("sources", {})
        changed = sorted(
            what for what, digest in sources.items() if digest != before.get(what, digest)
        )
        if changed:
            raise RefusedError(
                f"the {' and the '.join(changed)} of {self.name} changed since run {self.spec.run} "
                "began; put back what was there and resume, or begin a new run"
            )

    def answer(self, frame: bytes, caller: str) -> bytes:
        """The reply frame to a request frame; `caller` is who sent it according to the hub, which
        is not believed without a signature."""
        with self._lock:
            opened = None
            try:
                digest = hashlib.sha256(frame).digest()
                if self._newest is not None and digest == self._newest[0]:
                    return self._newest[1]
                opened = unseal(self.keys, frame, self.spec.max_bytes)
                self._check_sender(opened.envelope, caller)
                kind, body = self._answered(opened)
                answer = self._sealed(opened, kind, body)
            except Exception as error:
                return self._refuse(opened, caller, len(frame), public(error))
            self._newest = (digest, answer)
            return answer

    def _answered(self, opened: Opened) -> tuple[str, bytes]:
        """(kind, body) of the answer to a frame of the active party."""
        envelope = opened.envelope
        if envelope.kind == "hello":
            return self._welcome(envelope)
        if envelope.session != self.session or envelope.counter <= self.counter:
            raise RefusedError(
                "a frame of another session, or one that came before: replay refused"
            )
        self.counter = envelope.counter
        if envelope.kind == "align":
            return self._align(envelope, opened.body)
        if envelope.kind == "finish":
            return self._finish(envelope)
        if envelope.kind == "request":
            return self._request(envelope, opened.body)
        raise RefusedError(f"a {envelope.kind} frame is not a request")

    def _check_sender(self, envelope: Envelope, caller: str) -> None:
        if caller != self.policy.active or envelope.sender != caller:
            raise RefusedError(f"{caller} may not ask this party (as {envelope.sender})")
        if envelope.run != self.spec.run:
            raise RefusedError(f"addressed to run {envelope.run}")
        if envelope.spec != self.spec.digest():
            raise RefusedError("the job's specification differs between the two sides")
        objections = self.policy.objections(self.spec)
        if objections:
            raise RefusedError("refused by policy: " + "; ".join(objections))

    def _welcome(self, envelope: Envelope) -> tuple[str, bytes]:
        self._check_same_job()
        self.log.add(
            "accepted",
            run=self.spec.run,
            peer=envelope.sender,
            decision="accepted",
            round=self.last,
        )
        aligned = self.aligner.digest if self.aligner is not None else ""
        facts = {"last": self.last, "head": self.log.head, "aligned": aligned}
        facts |= {"session": self.session, "counter": self.counter}
        return "welcome", json.dumps(facts).encode()

    def _align(self, envelope: Envelope, body: bytes) -> tuple[str, bytes]:
        if self.aligner is None or self._found is not None or self._party is not None:
            raise RefusedError("no alignment is due: the run has begun, or the rows need none")
        self._log(envelope, "request", f"Alignment{envelope.round}", len(body), "accepted")
        try:
            reply = self.aligner.handle_bytes(envelope.round, body)
        except AlignmentError as error:  # these texts name no id and no file
            raise RefusedError(str(error)) from None
        self._log(envelope, "reply", f"Alignment{envelope.round}", len(reply), "sent")
        return "align", reply

    def _finish(self, envelope: Envelope) -> tuple[str, bytes]:
        """Training is over: keep the party as its last answer left it."""
        self._check_same_job()
        latest = self.store.latest()
        if self.keep is None or latest is None:
            raise RefusedError("there is nothing to finish: this party has not been asked anything")
        self.keep(party_state(latest))
        self.log.add(
            "finished", run=self.spec.run, peer=envelope.sender, round=latest.round, decision="kept"
        )
        return "finish", b""

    def _request(self, envelope: Envelope, body: bytes) -> tuple[str, bytes]:
        party, kind = self.party, message_type(body)
        agreed = kind in self.policy.receive and kind in self.spec.down
        if not agreed and envelope.sender != self.name:  # what a party asks itself crosses nothing
            raise RefusedError(f"message type {kind} is not allowed in this run")
        if envelope.round > self.spec.rounds:
            raise RefusedError(f"round {envelope.round} is beyond the {self.spec.rounds} agreed on")
        if (earlier := self._earlier(envelope.round, request_digest(body))) is not None:
            self._log(envelope, "reply", message_type(earlier), len(earlier), "repeated")
            return "reply", earlier
        if place(envelope, request_digest(body), self.last, self.answered) == "new":
            self._log(envelope, "request", kind, len(body), "accepted")
            self._work(party, envelope, body)
            self._log(envelope, "reply", message_type(self.reply), len(self.reply), "sent")
        else:
            self._log(envelope, "reply", message_type(self.reply), len(self.reply), "repeated")
        return "reply", self.reply

    def _earlier(self, number: int, digest: str) -> bytes | None:
        """The answer to the same request of an earlier round, where its checkpoint is still there:
        the active party may have lost the end of its journal."""
        if not 0 < number < self.last:
            return None
        try:
            kept = self.store.load(number)
        except DamagedError:
            return None
        return unblob(kept.tensors[REPLY]) if kept.header["answered"] == digest else None

    def _work(self, party: Answering, envelope: Envelope, body: bytes) -> None:
        """Answer, check what would leave, and keep the answer; or be as before."""
        digest = request_digest(body)
        try:
            reply = party.handle_bytes(body, f"round {envelope.round}, request {digest[:16]}")
            kind = message_type(reply)
            if kind not in self.policy.send or kind not in self.spec.up:
                raise RefusedError(f"message type {kind} may not leave this party")
            if len(reply) > self.spec.max_bytes:
                raise RefusedError(
                    f"the answer of {len(reply):,} bytes is over the limit of "
                    f"{self.spec.max_bytes:,}"
                )
            self._keep(envelope.round, digest, reply)
        except Exception:
            latest = self.store.latest()
            if latest is not None:
                self._return_to(latest)
            raise

    def _keep(self, number: int, answered: str, reply: bytes) -> None:
        assert self._party is not None
        tensors = {**self._party.state(), REPLY: blob(reply)}
        header = {"run": self.spec.run, "party": self.name, "spec": self.spec.digest()}
        header |= {"answered": answered, "audit": self.log.head}
        self.store.save(Checkpoint(number, tensors, {**header, "sources": self._party.sources}))
        self.last, self.answered, self.reply = number, answered, reply

    def _return_to(self, checkpoint: Checkpoint) -> None:
        self.reply = unblob(checkpoint.tensors[REPLY])
        assert self._party is not None
        self._party.restore(party_state(checkpoint))
        self.last, self.answered = checkpoint.round, str(checkpoint.header["answered"])

    def _sealed(self, opened: Opened, kind: str, body: bytes) -> bytes:
        asked = opened.envelope
        header = Envelope(
            kind,
            self.spec.run,
            self.spec.digest(),
            self.name,
            asked.sender,
            asked.round,
            answers=opened.digest,
        )
        return seal(self.keys, header, body, opened.certificate)

    def _refuse(self, opened: Opened | None, caller: str, size: int, reason: str) -> bytes:
        number = opened.envelope.round if opened else 0
        with suppress(DiskError):  # saying no needs no disk
            self.log.add(
                "refused",
                run=self.spec.run,
                peer=caller,
                bytes=size,
                round=number,
                decision="refused",
                reason=reason,
            )
        if opened is None:
            return refusal(self.keys, self.spec, caller, reason)
        return self._sealed(opened, "refusal", reason[:LONGEST_REASON].encode())

    def _log(self, envelope: Envelope, event: str, kind: str, size: int, decision: str) -> None:
        self.log.add(
            event,
            run=self.spec.run,
            peer=envelope.sender,
            type=kind,
            bytes=size,
            round=envelope.round,
            decision=decision,
        )


LONGEST_REASON = 900  # characters


def refusal(keys: Keys, spec: JobSpec, caller: str, reason: str) -> bytes:
    """The frame that says no to somebody whose frame could not be opened: signed, in clear."""
    header = Envelope("refusal", spec.run, spec.digest(), keys.name, caller, 0)
    return seal(keys, header, reason[:LONGEST_REASON].encode())


def public(error: Exception) -> str:
    """What the other side may know of an error: own refusals in full, anything else by its kind
    alone."""
    shown_in_full = EnvelopeError | RefusedError | MessageError | LimitError | BudgetError
    if isinstance(error, shown_in_full):
        return str(error)
    logging.getLogger(__name__).error("the party failed", exc_info=error)
    if isinstance(error, DiskError):
        return error.short
    return f"the party failed ({type(error).__name__}); its own log says more"


def message_type(data: bytes) -> str:
    """The type a message claims in its header, without touching its arrays."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(MAX_HEADER, len(data) - 8):
        raise MessageError("not a message: the header length does not fit")
    try:
        name = json.loads(data[8 : 8 + length])["__metadata__"]["type"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MessageError("not a message: the header is not one of the declared types") from None
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 64:
        raise MessageError("not a message: the header is not one of the declared types")
    return name
