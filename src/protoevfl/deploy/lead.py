"""The active party's side: an engine that asks other companies, waits, goes on without them or
stops, forgets nothing.

Every exchange is written to a journal before the method sees it. After a crash the method simply
starts again: the journal answers the exchanges that were done (the request must be the same, bit
for bit) and the parties answer the rest, so a resumed run is the uninterrupted run.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from protoevfl.codec import decode, encode
from protoevfl.deploy.audit_log import AuditLog
from protoevfl.deploy.checkpoints import Checkpoint, CheckpointStore, DamagedError, blob, unblob
from protoevfl.deploy.envelope import Envelope, EnvelopeError, Spans, spans
from protoevfl.deploy.host import message_type
from protoevfl.deploy.seal import Keys, Opened, seal, signed_digest, unseal
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.federation.lockstep import Address, PartyLostError
from protoevfl.messages import Describe, Embeddings, Learned, Message, MessageError, Statistics
from protoevfl.method import PartyError

Send = Callable[[str, bytes, float], bytes]  # (party, frame, seconds) -> frame
RETRY_S = 2.0
KEPT = 3  # rounds that a party keeps (CheckpointStore)
MISSED_S = 5.0  # for a party that missed the round before


class LostError(Exception):
    """No usable answer, and asking again later may help."""


class PartyRefusedError(UserError):
    """A party was reached and said no; asking again is of no use."""


def canonical(data: bytes) -> bytes:
    """The same safetensors bytes with the header's entries sorted: equal messages become equal
    bytes."""
    length = int.from_bytes(data[:8], "little")
    header = json.dumps(
        json.loads(data[8 : 8 + length]), sort_keys=True, separators=(",", ":")
    ).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


@dataclass(frozen=True)
class _Ask:
    """What to ask a party; every try is a frame of its own."""

    kind: str
    round: int  # of alignment: the step
    body: bytes = b""
    missed: Spans = ()


@dataclass
class _Session:
    """A party's process, as its welcome named it."""

    certificate: bytes
    name: str
    counter: int  # of the last request


ANSWER = {"hello": "welcome", "align": "align", "request": "reply", "finish": "finish"}


def _nothing(round: int, absent: Mapping[str, str]) -> None:
    """The default watcher."""


@dataclass
class Lead:
    """An engine (see drive.py) over real parties; exchange n is round n of the run."""

    spec: JobSpec
    keys: Keys
    send: Send
    journal: CheckpointStore
    log: AuditLog
    dims: Mapping[str, int] = field(default_factory=dict)  # sizes every reply must have
    absent: frozenset[str] = frozenset()  # parties known to be away in this attempt
    watch: Callable[[int, Mapping[str, str]], None] = _nothing
    sources: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of the active party's files
    # rows that an answer of a party (by number) to a request must have; None: any number
    rows: Callable[[int, Message], int | None] = lambda party, request: None

    def __post_init__(self) -> None:
        self.round = 0
        self.seconds: list[float] = []  # of each exchange
        # asked, and no answer
        self.missed: dict[str, list[int]] = {name: [] for name in self.spec.parties}
        # since its last answer
        self.unasked: dict[str, list[int]] = {name: [] for name in self.spec.parties}
        self.heads: dict[str, str] = {}  # of the parties' audit logs
        self.sessions: dict[str, _Session] = {}
        self.last: dict[str, int] = {}  # round that each party answered last, as it says
        self.aligned: dict[str, str] = {}  # keyed hash of each party's common rows
        self.pool = ThreadPoolExecutor(len(self.spec.parties), thread_name_prefix="ask")

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    def hello(self) -> None:
        """Ask every party whether it takes part; refusals stop the run before anything is sent."""
        names = [n for n in self.spec.parties if n not in self.absent]
        for name, answer in self._ask_all({n: _Ask("hello", self.round) for n in names}).items():
            if isinstance(answer, PartyError):
                self._lost(name, answer.reason)

    def align(self, name: str, step: int, message: bytes) -> bytes:
        """One alignment message and its answer; not kept, for alignment starts again after a
        crash."""
        self._log(name, "request", f"Alignment{step}", len(message), "sent")
        answer = self._ask_all({name: _Ask("align", step, message)})[name]
        if isinstance(answer, PartyError):
            raise PartyLostError(f"party {name} did not answer while aligning: {answer.reason}")
        return answer

    def finish(self) -> None:
        """Training is over: every party keeps what it has learnt. One that is away does so when it
        is next asked."""
        asks = {n: _Ask("finish", self.round) for n in self.spec.parties}
        for name, answer in self._ask_all(asks).items():
            if isinstance(answer, PartyError):
                self._log(name, "lost", "", 0, "later", answer.reason)

    def exchange(
        self, requests: Mapping[Address, Message]
    ) -> Mapping[Address, Message | PartyError]:
        """One round: from the journal if it was done before, else from the parties."""
        self.round += 1
        start = time.perf_counter()
        bodies = {
            self.spec.parties[party]: canonical(encode(message))
            for (_, party), message in requests.items()
        }
        for name, body in bodies.items():
            if name != self.spec.active and message_type(body) not in self.spec.down:
                raise UserError(
                    f"{message_type(body)} is not among the message types that were agreed on"
                )
        self.asked = {self.spec.parties[party]: message for (_, party), message in requests.items()}
        done = self._from_journal(bodies)
        if done is None:
            answers = self._from_parties(bodies)
        else:
            self._catch_up(bodies, done)
            answers = done
        for name in self.spec.parties:
            if name not in answers:
                self.unasked[name].append(self.round)
            elif isinstance(answers[name], PartyError):
                self.missed[name].append(self.round)
            else:
                self.missed[name], self.unasked[name] = [], []
        self.seconds.append(time.perf_counter() - start)
        self.watch(
            self.round, {n: a.reason for n, a in answers.items() if isinstance(a, PartyError)}
        )
        return {a: self._decoded(answers[self.spec.parties[a[1]]]) for a in requests}

    def _decoded(self, answer: bytes | PartyError) -> Message | PartyError:
        return (
            answer
            if isinstance(answer, PartyError)
            else decode(answer, self.dims, self.spec.max_bytes)
        )

    # ------------------------------------------------------------ the journal

    def check_sources(self) -> None:
        """The active party's files are those that the run began with, or it would become another
        run unnoticed."""
        entry = self.journal.latest()
        before = {} if entry is None else dict(entry.header.get("sources", {}))
        if changed := sorted(what for what in before if self.sources.get(what) != before[what]):
            raise UserError(
                f"the {' and the '.join(changed)} of {self.spec.active} changed since run "
                f"{self.spec.run} began; put back what was there and resume, or begin a new run"
            )

    def _from_journal(self, bodies: Mapping[str, bytes]) -> dict[str, bytes | PartyError] | None:
        if self.round not in self.journal.rounds():
            return None
        try:
            entry = self.journal.load(self.round)
        except DamagedError as error:  # the parties are asked again
            self._log("", "damaged", "", 0, "asked again", str(error))
            return None
        if entry.header["spec"] != self.spec.digest():
            raise UserError(
                f"run {self.spec.run} was begun with another specification; give the changed run a "
                "new name"
            )
        if entry.header["asked"] != {n: hashlib.sha256(b).hexdigest() for n, b in bodies.items()}:
            raise UserError(
                f"round {self.round} of run {self.spec.run} does not repeat exactly on this "
                "machine; it cannot be "
                "resumed here (another version, machine or thread count?)"
            )
        lost = {
            n: PartyError(self.spec.parties.index(n), why)
            for n, why in dict(entry.header["lost"]).items()
        }
        return {**{n: unblob(t) for n, t in entry.tensors.items()}, **lost}

    def _write(
        self, bodies: Mapping[str, bytes], answers: Mapping[str, bytes | PartyError]
    ) -> None:
        tensors = {n: blob(a) for n, a in answers.items() if not isinstance(a, PartyError)}
        lost = {n: a.reason for n, a in answers.items() if isinstance(a, PartyError)}
        asked = {n: hashlib.sha256(b).hexdigest() for n, b in bodies.items()}
        header = {"run": self.spec.run, "spec": self.spec.digest(), "asked": asked, "lost": lost}
        header["sources"] = dict(self.sources)
        self.journal.save(Checkpoint(self.round, tensors, {**header, "audit": self.log.head}))

    def _catch_up(
        self, bodies: Mapping[str, bytes], done: Mapping[str, bytes | PartyError]
    ) -> None:
        """A party that lost its newest checkpoints answers those rounds again, bit for bit."""
        behind = {
            name: body
            for name, body in bodies.items()
            if self.last.get(name, self.round) < self.round
            and not isinstance(done[name], PartyError)
        }
        for name, answer in self._ask_round(behind).items():
            if answer != done[name]:
                raise UserError(
                    f"party {name} lost its checkpoint of round {self.round} and does not repeat it "
                    "exactly (another version, machine or thread count there?); restore its run "
                    "folder from a copy, or begin a new run"
                )

    def _ask_round(self, bodies: Mapping[str, bytes]) -> dict[str, bytes | PartyError]:
        without = {n: spans(sorted(self.missed[n] + self.unasked[n])) for n in bodies}
        return self._ask_all(
            {n: _Ask("request", self.round, b, without[n]) for n, b in bodies.items()}
        )

    def _check_journal(self) -> None:
        """Rounds that the parties answered and the journal lost can be asked for again while the
        parties still have them."""
        ahead = {n: last for n, last in self.last.items() if last >= self.round + KEPT}
        if ahead:
            name, last = max(ahead.items(), key=lambda item: item[1])
            raise UserError(
                f"the journal of run {self.spec.run} at {self.spec.active} has no whole round "
                f"{self.round}, while party {name} has answered up to round {last}: restore "
                f"{self.journal.folder.parent.name}/{self.journal.folder.name} from a copy and "
                "resume, or begin a new run"
            )

    # ------------------------------------------------------------ the parties

    def _from_parties(self, bodies: Mapping[str, bytes]) -> dict[str, bytes | PartyError]:
        if self.round > self.spec.rounds:
            raise UserError(
                f"the method asks for more than the {self.spec.rounds} rounds that were agreed on"
            )
        self._check_journal()
        for name, body in bodies.items():
            self._log(name, "request", message_type(body), len(body), "sent")
        answers = self._ask_round(bodies)
        for name, answer in answers.items():
            if isinstance(answer, PartyError):
                self._lost(name, answer.reason)
        self._write(bodies, answers)
        return answers

    def _lost(self, name: str, reason: str) -> None:
        self.log.add(
            "lost",
            run=self.spec.run,
            peer=name,
            round=self.round,
            decision=self.spec.on_party_loss,
            reason=reason,
        )
        if self.spec.on_party_loss != "skip" or name == self.spec.active:
            raise PartyLostError(f"party {name} did not answer in round {self.round}: {reason}")

    def _ask_all(self, asks: Mapping[str, "_Ask"]) -> dict[str, bytes | PartyError]:
        away = {
            n: PartyError(self.spec.parties.index(n), "away in this attempt")
            for n in asks
            if n in self.absent
        }
        asked: dict[str, Future[bytes]] = {
            n: self.pool.submit(self._ask, n, ask) for n, ask in asks.items() if n not in away
        }
        answers: dict[str, bytes | PartyError] = dict(away)
        for name, future in asked.items():
            try:
                answers[name] = future.result()
            except LostError as error:
                answers[name] = PartyError(self.spec.parties.index(name), str(error))
        return answers

    def _ask(self, name: str, ask: "_Ask") -> bytes:
        """The body of the party's answer. Asked again (the party answers a round once) until the
        deadline."""
        patience = self.spec.deadline_s + (
            self.spec.wait_s if self.spec.on_party_loss == "wait" else 0.0
        )
        # with "skip": it did not answer the last round, so do not hold up this one for long
        if self.missed[name]:
            patience = min(patience, MISSED_S)
        end = time.monotonic() + patience
        while True:
            left = max(0.1, min(end - time.monotonic(), self.spec.deadline_s))
            try:
                if name not in self.sessions:
                    self._greet(name, left)
                return b"" if ask.kind == "hello" else self._talk(name, ask, left)
            except LostError as error:
                reason = str(error)
            if time.monotonic() + RETRY_S >= end:
                raise LostError(f"{reason} (waited {patience:g} s)")
            time.sleep(RETRY_S)

    def _greet(self, name: str, seconds: float) -> None:
        """Learn the party's certificate and its session; what it says of itself is kept."""
        opened = self._exchange_frames(name, _Ask("hello", self.round), seconds)
        try:
            facts = json.loads(opened.body)
            self.heads[name], self.aligned[name] = str(facts["head"]), str(facts["aligned"])
            self.last[name] = int(facts["last"])
            session = _Session(opened.certificate, str(facts["session"]), int(facts["counter"]))
        except (ValueError, KeyError, TypeError):
            raise PartyRefusedError(f"party {name} sent a welcome that cannot be used") from None
        self.sessions[name] = session

    def _talk(self, name: str, ask: "_Ask", seconds: float) -> bytes:
        body = self._exchange_frames(name, ask, seconds).body
        if ask.kind == "request":
            self._check_body(name, body)
        return body

    def _exchange_frames(self, name: str, ask: "_Ask", seconds: float) -> Opened:
        """A new frame (its counter is used once) and the answer to it."""
        header = Envelope(
            ask.kind, self.spec.run, self.spec.digest(), self.spec.active, name, ask.round
        )
        header = replace(header, missed=ask.missed)
        receiver = None
        if ask.kind != "hello":
            session = self.sessions[name]
            session.counter += 1
            receiver = session.certificate
            header = replace(header, session=session.name, counter=session.counter)
        frame = seal(self.keys, header, ask.body, receiver)
        return self._opened(name, ask, signed_digest(frame), self.send(name, frame, seconds))

    def _opened(self, name: str, ask: "_Ask", asked: str, frame: bytes) -> Opened:
        """The answer in a frame, if `name` signed it for this very request."""
        try:
            opened = unseal(self.keys, frame, self.spec.max_bytes)
        except EnvelopeError as error:
            self._log(name, "reply", "", len(frame), "refused", str(error))
            raise PartyRefusedError(
                f"an answer in the name of party {name} cannot be used: {error}"
            ) from None
        envelope = opened.envelope
        if envelope.sender != name:
            reason = f"{envelope.sender} answered in place of {name}"
            self._log(name, "reply", "", len(frame), "refused", reason)
            raise PartyRefusedError(f"{reason}: refused; is the hub to be trusted?")
        of_this_run = (envelope.run, envelope.spec) == (self.spec.run, self.spec.digest())
        # a party that could not open the request cannot name it either
        if envelope.kind == "refusal" and of_this_run and envelope.answers in (asked, ""):
            note = opened.body.decode(errors="replace")
            self._log(name, "reply", "", len(frame), "refused", note)
            raise PartyRefusedError(f"party {name} refused round {ask.round}: {note}")
        expected = (ANSWER[ask.kind], self.spec.run, self.spec.digest(), ask.round, asked)
        answered = (envelope.kind, envelope.run, envelope.spec, envelope.round, envelope.answers)
        if answered != expected:
            self._log(name, "reply", "", len(frame), "refused", "not the answer to this request")
            raise LostError(
                f"an answer of {name} to another request came (replayed or reordered on its way)"
            )
        return opened

    def _check_body(self, name: str, body: bytes) -> None:
        try:
            kind = message_type(body)
            if kind not in self.spec.up:
                raise MessageError(f"message type {kind} was not agreed on")
            self._check_shape(name, decode(body, self.dims, self.spec.max_bytes))
        except MessageError as error:
            self._log(name, "reply", "", len(body), "refused", str(error))
            raise PartyRefusedError(
                f"party {name} sent an answer that cannot be used: {error}"
            ) from None
        self._log(name, "reply", kind, len(body), "accepted")

    def _check_shape(self, name: str, reply: Message) -> None:
        """Sizes that the method would stumble over later, when nobody knows whose they were."""
        request = self.asked[name]
        if isinstance(reply, Embeddings | Learned):
            rows = self.rows(self.spec.parties.index(name), request)
            if rows is not None and len(reply.values) != rows:
                raise MessageError(f"{len(reply.values):,} rows, {rows:,} were asked for")
            if reply.values.shape[1] < 1:
                raise MessageError("rows without a number in them")
        if isinstance(reply, Statistics) and isinstance(request, Describe):
            groups, components, width = reply.means.shape
            if groups != request.groups + 1 or not components or not width:
                raise MessageError(
                    f"statistics of {groups} groups, {request.groups + 1} were asked for"
                )

    def _log(
        self, peer: str, event: str, kind: str, size: int, decision: str, reason: str = ""
    ) -> None:
        self.log.add(
            event,
            run=self.spec.run,
            peer=peer,
            type=kind,
            bytes=size,
            round=self.round,
            decision=decision,
            reason=reason,
        )
