"""A party behind its border: every frame is checked, logged, answered once, and the answer is kept
before it leaves.

    frame -> who sent it? -> which run, round? -> allowed type? -> party -> checkpoint on disk ->
    reply

A round that comes again is answered from the checkpoint, so a lost connection or a crash after the
answer costs nothing and trains nothing twice. If the party fails in the middle, it goes back to its
last checkpoint.
"""

import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from protoevfl.deploy.audit_log import AuditLog
from protoevfl.deploy.checkpoints import (
    REPLY,
    Checkpoint,
    CheckpointStore,
    blob,
    party_state,
    unblob,
)
from protoevfl.deploy.durable import DiskError
from protoevfl.deploy.envelope import Envelope, EnvelopeError, pack, place, unpack
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.spec import JobSpec
from protoevfl.messages import MAX_HEADER, MessageError
from protoevfl.rows.align_wire import AlignmentError


class Answering(Protocol):
    """A party that speaks bytes; its whole memory is in `state()`."""

    def handle_bytes(self, request: bytes) -> bytes: ...
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
    name: str
    spec: JobSpec
    policy: Policy
    store: CheckpointStore
    log: AuditLog
    aligner: Aligning | None = None
    keep: Callable[[dict[str, Tensor]], None] | None = None  # writes down what the party has learnt

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._party: Answering | None = None
        self.last, self.answered, self.reply = 0, "", b""
        self._found = self.store.latest()
        if self._found is not None:
            self.last = self._found.round

    @property
    def party(self) -> Answering:
        if self._party is None:
            self._check_same_job()
            self._party = self.make()
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

    def answer(self, frame: bytes, caller: str) -> bytes:
        """The reply frame to a request frame of `caller` (its name as its certificate says)."""
        with self._lock:
            envelope = None
            try:
                envelope, body = unpack(frame, self.spec.max_bytes)
                self._check_sender(envelope, caller)
                if envelope.kind == "hello":
                    return self._welcome(envelope)
                if envelope.kind == "align":
                    return self._align(envelope, body)
                if envelope.kind == "finish":
                    return self._finish(envelope)
                return self._request(envelope, body)
            except Exception as error:
                return self._refuse(envelope, caller, len(frame), public(error))

    def _check_sender(self, envelope: Envelope, caller: str) -> None:
        if caller != self.policy.active or envelope.sender != caller:
            raise RefusedError(f"{caller} may not ask this party (as {envelope.sender})")
        if envelope.to != self.name or envelope.run != self.spec.run:
            raise RefusedError(f"addressed to {envelope.to} in run {envelope.run}")
        if envelope.spec != self.spec.digest():
            raise RefusedError("the job's specification differs between the two sides")
        objections = self.policy.objections(self.spec)
        if objections:
            raise RefusedError("refused by policy: " + "; ".join(objections))

    def _welcome(self, envelope: Envelope) -> bytes:
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
        return pack(self._reply_header(envelope, "welcome"), json.dumps(facts).encode())

    def _align(self, envelope: Envelope, body: bytes) -> bytes:
        if self.aligner is None or self._found is not None or self._party is not None:
            raise RefusedError("no alignment is due: the run has begun, or the rows need none")
        self._log(envelope, "request", f"Alignment{envelope.round}", len(body), "accepted")
        try:
            reply = self.aligner.handle_bytes(envelope.round, body)
        except AlignmentError as error:  # these texts name no id and no file
            raise RefusedError(str(error)) from None
        self._log(envelope, "reply", f"Alignment{envelope.round}", len(reply), "sent")
        return pack(self._reply_header(envelope, "align"), reply)

    def _finish(self, envelope: Envelope) -> bytes:
        """Training is over: keep the party as its last answer left it."""
        self._check_same_job()
        latest = self.store.latest()
        if self.keep is None or latest is None:
            raise RefusedError("there is nothing to finish: this party has not been asked anything")
        self.keep(party_state(latest))
        self.log.add(
            "finished", run=self.spec.run, peer=envelope.sender, round=latest.round, decision="kept"
        )
        return pack(self._reply_header(envelope, "finish"))

    def _request(self, envelope: Envelope, body: bytes) -> bytes:
        party, kind = self.party, message_type(body)
        if kind not in self.policy.receive or kind not in self.spec.down:
            raise RefusedError(f"message type {kind} is not allowed in this run")
        if envelope.round > self.spec.rounds:
            raise RefusedError(f"round {envelope.round} is beyond the {self.spec.rounds} agreed on")
        if place(envelope, self.last, self.answered) == "new":
            self._log(envelope, "request", kind, len(body), "accepted")
            self._work(party, envelope, body)
            self._log(envelope, "reply", message_type(self.reply), len(self.reply), "sent")
        else:
            self._log(envelope, "reply", message_type(self.reply), len(self.reply), "repeated")
        return pack(self._reply_header(envelope, "reply"), self.reply)

    def _work(self, party: Answering, envelope: Envelope, body: bytes) -> None:
        """Answer, check what would leave, and keep the answer; or be as before."""
        try:
            reply = party.handle_bytes(body)
            kind = message_type(reply)
            if kind not in self.policy.send or kind not in self.spec.up:
                raise RefusedError(f"message type {kind} may not leave this party")
            if len(reply) > self.spec.max_bytes:
                raise RefusedError(
                    f"the answer of {len(reply):,} bytes is over the limit of "
                    f"{self.spec.max_bytes:,}"
                )
            self._keep(envelope.round, envelope.sha256, reply)
        except Exception:
            found = self.store.latest()
            if found is not None:
                self._return_to(found)
            raise

    def _keep(self, number: int, answered: str, reply: bytes) -> None:
        assert self._party is not None
        tensors = {**self._party.state(), REPLY: blob(reply)}
        header = {"run": self.spec.run, "party": self.name, "spec": self.spec.digest()}
        header |= {"answered": answered, "audit": self.log.head}
        self.store.save(Checkpoint(number, tensors, header))
        self.last, self.answered, self.reply = number, answered, reply

    def _return_to(self, checkpoint: Checkpoint) -> None:
        self.reply = unblob(checkpoint.tensors[REPLY])
        assert self._party is not None
        self._party.restore(party_state(checkpoint))
        self.last, self.answered = checkpoint.round, str(checkpoint.header["answered"])

    def _reply_header(self, envelope: Envelope, kind: str) -> Envelope:
        return replace(envelope, kind=kind, sender=self.name, to=envelope.sender, missed=())

    def _refuse(self, envelope: Envelope | None, caller: str, size: int, reason: str) -> bytes:
        number = envelope.round if envelope else 0
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
        return refusal(self.spec, self.name, caller, number, reason)

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


def refusal(spec: JobSpec, name: str, caller: str, number: int, reason: str) -> bytes:
    """The frame that says no."""
    return pack(
        Envelope("refusal", spec.run, spec.digest(), name, caller, number, note=reason[:900])
    )


def public(error: Exception) -> str:
    """What the other side may know of an error: own refusals in full, anything else by its kind
    alone."""
    if isinstance(error, EnvelopeError | RefusedError | MessageError):
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
