"""The active party's side of a standing service: asks the other parties for single rows, by place,
within a deadline, and does without those that do not answer.

A party that failed a few times in a row is not asked for a while (a circuit breaker); a background
thread greets it until it is back. What a party sent may be used again for as long as both policies
allow, until the party calls it back.
"""

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from protoevfl.codec import decode, encode
from protoevfl.deploy.aligning import align_pair
from protoevfl.deploy.envelope import Envelope, EnvelopeError
from protoevfl.deploy.seal import Keys, seal, signed_digest, unseal
from protoevfl.deploy.spec import JobSpec
from protoevfl.deploy.universe import Segment, Universe
from protoevfl.errors import UserError
from protoevfl.federation.engines.nvflare import CallError
from protoevfl.messages import EmbedAt, Embeddings, MessageError
from protoevfl.rows.ids import Ids

Send = Callable[[str, bytes, float], bytes]  # (party, frame, seconds) -> frame; CallError
FAILURES = 3  # in a row: then the party is not asked until it has been greeted again
GREET_S = 30.0  # for an answer to a greeting: the party may be loading its model
BEAT_S = 2.0  # between two greetings of a party that is away
CHECK_S = 10.0  # between two greetings of a party that answers
ALIGN_S = 600.0
MOST_KEPT = 200_000  # rows of one party that are kept to be used again


class AwayError(Exception):
    """No usable answer of a party now; the text says why and may be shown to callers."""


class OverLimitError(UserError):
    """A party's own limit would be passed; nothing was sent."""


@dataclass(frozen=True)
class Greeting:
    """What a party said of itself."""

    certificate: bytes
    session: str
    places: Mapping[str, int]  # {id: place}
    cache_s: float
    recalled: str
    rows_per_request: int
    least_ids: int
    most_ids: int


@dataclass
class Partner:
    """One other party, as one run knows it."""

    name: str
    spec: JobSpec
    keys: Keys
    send: Send
    universe: Universe
    clock: Callable[[], float] = time.monotonic
    width: int | None = None  # numbers per row, once known

    def __post_init__(self) -> None:
        self.greeting: Greeting | None = None
        self.reason = "not greeted yet"
        self.note = ""  # why new customers could not be aligned, the last time
        self.failures = 0
        self.requests_left = self.rows_left = 0
        self._counter = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[float, Tensor]] = OrderedDict()
        self.greeted = -1e9

    # ------------------------------------------------------------ is it there?

    @property
    def up(self) -> bool:
        """Whether it is asked at all."""
        return self.greeting is not None and self.failures < FAILURES

    def beat(self) -> None:
        """Greet the party where that is due; never raises."""
        every = CHECK_S if self.up else BEAT_S
        if self.clock() - self.greeted < every:
            return
        self.greeted = self.clock()
        try:
            self.greet()
        except AwayError as error:
            self.reason = str(error)
            self.failures = FAILURES
        finally:
            self.greeted = self.clock()

    def greet(self, seconds: float = GREET_S) -> None:
        """Open the run at the party, or hear whether anything changed there; AwayError."""
        body = json.dumps(self.spec.to_dict()).encode()
        answer, certificate = self._exchange("hello", 0, body, seconds, None)
        try:
            facts = json.loads(answer)
            segments = [(str(digest), int(size)) for digest, size in facts["segments"]]
            gone = {int(place) for place in facts["gone"]}
            places = self.universe.places([d for d, _ in segments], [n for _, n in segments])
            greeting = Greeting(
                certificate,
                str(facts["session"]),
                {value: place for value, place in places.items() if place not in gone},
                min(float(facts["cache_s"]), self.spec.cache_s),
                str(facts["recalled"]),
                int(facts["rows_per_request"]),
                int(facts["least_ids"]),
                int(facts["most_ids"]),
            )
            left = int(facts["requests_left"]), int(facts["rows_left"])
        except (ValueError, KeyError, TypeError):
            raise AwayError(f"{self.name} sent a welcome that cannot be used") from None
        with self._lock:
            before = self.greeting
            if before is None or before.session != greeting.session:
                self._counter = 0
            same = before is not None and (before.session, before.recalled) == (
                greeting.session,
                greeting.recalled,
            )
            if not same:
                self._kept.clear()
            self.greeting, self.failures, self.reason = greeting, 0, ""
            self.requests_left, self.rows_left = left

    # ------------------------------------------------------------ rows

    def has(self, identity: str) -> bool:
        """Whether the party shares this customer, as far as is known here."""
        return self.greeting is not None and identity in self.greeting.places

    def check_limits(self, ids: Iterable[str]) -> None:
        """OverLimitError where the party's limits of the day do not allow asking for these."""
        greeting = self.greeting
        if greeting is None or not self.up:
            return
        with self._lock:
            wanted = self._unknown(
                greeting, {greeting.places[i] for i in ids if i in greeting.places}
            )
            if wanted and (self.requests_left < 1 or len(wanted) > self.rows_left):
                raise OverLimitError(
                    f"{self.name} allows no more rows today: {self.requests_left:,} requests and "
                    f"{self.rows_left:,} rows are left of its daily limit"
                )

    def embeddings(self, ids: Sequence[str], seconds: float) -> Tensor:
        """(n, d) of customers that the party shares; AwayError."""
        greeting = self.greeting
        if greeting is None or self.failures >= FAILURES:
            raise AwayError(self.reason or f"{self.name} does not answer")
        try:
            places = [greeting.places[i] for i in ids]
        except KeyError:
            raise AwayError(f"{self.name} no longer has the row") from None
        with self._lock:
            missing = self._unknown(greeting, set(places))
            known = {p: self._kept[p][1] for p in set(places) - set(missing)}
        end = self.clock() + seconds
        for start in range(0, len(missing), greeting.rows_per_request):
            part = missing[start : start + greeting.rows_per_request]
            values = self._ask(greeting, part, max(0.01, end - self.clock()))
            known |= dict(zip(part, values, strict=True))
        return torch.stack([known[p] for p in places])

    def _unknown(self, greeting: Greeting, places: set[int]) -> list[int]:
        """Places that must be asked for, in rising order: the order of a request tells nothing."""
        oldest = self.clock() - greeting.cache_s
        return sorted(p for p in places if p not in self._kept or self._kept[p][0] <= oldest)

    def _ask(self, greeting: Greeting, places: list[int], seconds: float) -> Tensor:
        body = encode(EmbedAt(torch.tensor(places, dtype=torch.int64)))
        try:
            answer, _ = self._exchange("request", 1, body, seconds, greeting)
            reply = decode(answer, {}, self.spec.max_bytes)
            if not isinstance(reply, Embeddings) or len(reply.values) != len(places):
                raise AwayError(f"{self.name} answered for another number of rows")
            if reply.values.shape[1] != (self.width or reply.values.shape[1]):
                raise AwayError(f"{self.name} answered with rows of another width")
        except (AwayError, MessageError) as error:
            self.failures += 1
            self.reason = str(error)
            raise AwayError(str(error)) from None
        with self._lock:
            self.failures = 0
            self.requests_left -= 1
            self.rows_left -= len(places)
            if greeting.cache_s > 0 and self.greeting is greeting:
                now = self.clock()
                for place, values in zip(places, reply.values, strict=True):
                    self._kept[place] = (now, values.clone())
                while len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
        return reply.values

    # ------------------------------------------------------------ new customers

    def align(self, ids: Ids, everything: bool = False) -> int:
        """Ask which of the customers that it was never asked about the party has; how many it was
        asked about. The party's limits hold."""
        greeting = self.greeting
        if greeting is None:
            raise AwayError(self.reason)
        shared = set(self.universe.ids)
        asked = shared if everything else self.universe.asked | shared
        new = [k for k, value in enumerate(ids.values) if value not in asked]
        if len(new) < greeting.least_ids:
            return 0
        new = new[: greeting.most_ids]
        part = Ids([ids.values[k] for k in new], ids.rows[new], ids.counts, ids.rules)

        def ask(other: str, step: int, message: bytes) -> bytes:
            return self._exchange("align", step, message, ALIGN_S, greeting)[0]

        alignment = align_pair(self.spec.active, self.name, part, 0, ask)
        self.universe.add(Segment.of(alignment, part), part.values)
        self.greet()
        return len(new)

    # ------------------------------------------------------------ frames

    def _exchange(
        self, kind: str, step: int, body: bytes, seconds: float, greeting: Greeting | None
    ) -> tuple[bytes, bytes]:
        """(body, sender's certificate) of the answer to one frame; AwayError."""
        digest = self.spec.digest()
        header = Envelope(kind, self.spec.run, digest, self.spec.active, self.name, step)
        receiver = None
        if greeting is not None:
            with self._lock:
                self._counter += 1
                counter = self._counter
            receiver = greeting.certificate
            header = Envelope(
                kind,
                self.spec.run,
                digest,
                self.spec.active,
                self.name,
                step,
                greeting.session,
                counter,
            )
        frame = seal(self.keys, header, body, receiver)
        try:
            opened = unseal(self.keys, self.send(self.name, frame, seconds), self.spec.max_bytes)
        except CallError as error:
            raise AwayError(f"{self.name} does not answer ({error})") from None
        except EnvelopeError as error:
            raise AwayError(
                f"an answer in the name of {self.name} cannot be used: {error}"
            ) from None
        answered = opened.envelope
        if answered.sender != self.name:
            raise AwayError(f"{answered.sender} answered in place of {self.name}: refused")
        if answered.kind == "refusal" and answered.answers in (signed_digest(frame), ""):
            text = opened.body.decode(errors="replace")
            if "another session" in text:
                self.greeted = -1e9  # greet at once: it was restarted, or its rows changed
                self.failures = FAILURES
            raise AwayError(f"{self.name}: {text}")
        expected = {"hello": "welcome", "request": "reply"}.get(kind, kind)
        if (answered.kind, answered.run, answered.spec, answered.answers) != (
            expected,
            self.spec.run,
            digest,
            signed_digest(frame),
        ):
            raise AwayError(f"an answer of {self.name} to another request came: refused")
        return opened.body, opened.certificate


@dataclass
class StandingLead:
    """All other parties of one run."""

    partners: dict[int, Partner]  # by their number in the run
    threads: int = 32
    beats: bool = True  # greet in the background
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.pool = ThreadPoolExecutor(self.threads, thread_name_prefix="standing")
        if self.beats:
            for partner in self.partners.values():
                threading.Thread(
                    target=self._watch, args=(partner,), daemon=True, name=f"beat-{partner.name}"
                ).start()

    def _watch(self, partner: Partner) -> None:
        while not self._stop.wait(0.2):
            partner.beat()

    def close(self) -> None:
        self._stop.set()
        self.pool.shutdown(wait=False, cancel_futures=True)

    def check_limits(self, ids: Sequence[str]) -> None:
        """OverLimitError before anything is sent to anybody."""
        for partner in self.partners.values():
            partner.check_limits(ids)

    def ask(
        self, wanted: Mapping[int, Sequence[str]], seconds: float
    ) -> tuple[dict[int, Tensor], dict[int, str]]:
        """({party: embeddings}, {party: why there are none}) by the deadline.

        wanted   customers by party; each shares all of its own
        """
        asked: dict[int, Future[Tensor]] = {}
        absent: dict[int, str] = {}
        end = time.monotonic() + seconds
        for number, ids in wanted.items():
            if self.partners[number].up:
                asked[number] = self.pool.submit(self.partners[number].embeddings, ids, seconds)
            else:
                absent[number] = self.partners[number].reason
        embeddings: dict[int, Tensor] = {}
        for number, future in asked.items():
            try:
                embeddings[number] = future.result(max(0.0, end - time.monotonic()))
            except AwayError as error:
                absent[number] = str(error)
            except TimeoutError:
                absent[number] = f"no answer within {seconds:g} s"
        return embeddings, absent

    def status(self) -> dict[str, dict[str, Any]]:
        """What is known of each party, for health and metrics."""
        return {
            p.name: {
                "up": p.up,
                "reason": p.reason,
                "alignment": p.note,
                "shared": len(p.greeting.places) if p.greeting else 0,
                "requests_left": p.requests_left,
                "rows_left": p.rows_left,
            }
            for p in self.partners.values()
        }
