"""A party's side of a standing service: it has the model of a finished run loaded and answers requests
for single rows, named by their place in what both sides share (universe.py).

    frame -> whose key signed it? -> this session, not seen before? -> policy -> ledger -> reply

What may leave of every shared row is computed once, when the rows are loaded: it passes the same guard
(clip, noise) and the same measurement (self_audit.py) as an answer of `deploy predict`, and a request
only picks lines of it. So a row that is asked for twice gives the same numbers and costs no second
privacy budget.
"""

import json
import secrets
import threading
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.codec import decode, encode
from protoevfl.deploy.aligning import Gate, Pair, PassiveSide
from protoevfl.deploy.envelope import Envelope
from protoevfl.deploy.host import RefusedError, message_type
from protoevfl.deploy.kit import Kit
from protoevfl.deploy.local import Local
from protoevfl.deploy.own_file import NewRows
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.row_ledger import Keys
from protoevfl.deploy.serving_log import DayLimits, ServingLog
from protoevfl.deploy.spec import JobSpec
from protoevfl.deploy.universe import Segment, Universe, earlier_segments
from protoevfl.messages import Embed, EmbedAt, Embeddings
from protoevfl.methods.sealed import has_scores
from protoevfl.rows.align_wire import AlignmentError

WINDOW = 4096  # requests that may overtake each other on their way
RECALLED = "recalled"  # a file in the run's folder; its change calls back what was kept elsewhere


class Window:
    """Counters of a session: each is good once, in any order within a window."""

    def __init__(self, size: int = WINDOW) -> None:
        self.size, self.highest = size, 0
        self._seen: set[int] = set()
        self._order: deque[int] = deque()

    def take(self, counter: int) -> bool:
        """Whether this counter is new; it is not from now on.

        >>> window = Window(size=2)
        >>> [window.take(n) for n in (1, 3, 2, 3, 6, 4, 1)]
        [True, True, True, False, True, False, False]
        """
        if counter <= self.highest - self.size or counter in self._seen or counter < 1:
            return False
        self._seen.add(counter)
        self._order.append(counter)
        self.highest = max(self.highest, counter)
        while len(self._order) > 2 * self.size:
            self._seen.discard(self._order.popleft())
        return True


@dataclass(frozen=True)
class Shelf:
    """What may leave of each shared row, by place."""

    values: Tensor  # (places, d); zeros where the row is gone
    here: NDArray[np.bool_]  # (places,)
    keys: Keys  # (places,) of the ledger
    form: str  # in which a row leaves, for the ledger
    stamp: tuple[int, int]  # of the file


@dataclass
class StandingParty:
    """One run at one party."""

    kit: Kit
    spec: JobSpec
    log: ServingLog

    def __post_init__(self) -> None:
        self.local = Local(self.kit, self.spec)
        self.universe = Universe.load(self.local.folder)
        self.lock = threading.RLock()
        self.session, self.window = secrets.token_hex(16), Window()
        self.shelf: Shelf | None = None
        self._pair = Pair(self.local.folder / "alignment" / self.spec.active)
        self._aligner: PassiveSide | None = None

    # ------------------------------------------------------------ what is loaded

    def load(self) -> Shelf:
        """The rows as the file has them now; a new session begins where they changed."""
        with self.lock:
            source = self._source()
            stamp = _stamp(source.path)
            if self.shelf is not None and self.shelf.stamp == stamp:
                return self.shelf
            ids = source.ids()
            if not self.universe.segments:
                for segment, _ in earlier_segments(self.local, self.spec.active):
                    self.universe.add(segment)
            rows = self.universe.rows(ids)
            here = rows >= 0
            values, form = self._values(source, rows[here])
            filled = torch.zeros(len(rows), values.shape[1] if len(values) else 1)
            filled[torch.from_numpy(here)] = values
            keys = self.local.keys_of(self.universe.ids)
            self.shelf = Shelf(filled, here, keys, form, stamp)
            self.session, self.window = secrets.token_hex(16), Window()
            return self.shelf

    def _source(self) -> NewRows:
        source = self.local.source()
        assert isinstance(source, NewRows)
        return source

    def _values(self, source: NewRows, rows: NDArray[np.int64]) -> tuple[Tensor, str]:
        """What may leave of these rows of the file, and its name in the ledger."""
        party = self.local.served(source, rows)
        if not len(rows):
            return torch.zeros(0, 1), "embedding"
        reply = decode(party.handle_bytes(encode(Embed("query")), "all shared rows"))
        assert isinstance(reply, Embeddings)
        scores = has_scores(party.party)
        features = "edges" in party.party.memory and not scores
        return reply.values, "score" if scores else "features" if features else "embedding"

    # ------------------------------------------------------------ answers

    def welcome(self, policy: Policy) -> dict[str, Any]:
        """What the active party must know: the session, what is shared, what may be asked."""
        shelf = self.load()
        requests, rows = self.log.used()
        rules = policy.serve
        return {
            "session": self.session,
            "segments": [[s.digest, len(s.ids)] for s in self.universe.segments],
            "gone": np.flatnonzero(~shelf.here).tolist(),
            "cache_s": min(rules.cache_s, self.spec.cache_s),
            "recalled": self._recalled(),
            "rows_per_request": rules.rows_per_request,
            "requests_left": max(0, rules.requests_per_day - requests),
            "rows_left": max(0, rules.rows_per_day - rows),
            "least_ids": policy.min_ids,
            "most_ids": policy.max_ids,
        }

    def _recalled(self) -> str:
        path = self.local.folder / RECALLED
        return str(path.stat().st_mtime_ns) if path.exists() else ""

    def answer(self, envelope: Envelope, body: bytes, policy: Policy) -> tuple[str, bytes]:
        """(kind, body) of the answer to a frame whose sender is proven."""
        if envelope.kind == "hello":
            return "welcome", json.dumps(self.welcome(policy)).encode()
        with self.lock:
            if envelope.session != self.session or not self.window.take(envelope.counter):
                raise RefusedError(
                    "a frame of another session, or one that came before: replay refused"
                )
            if envelope.kind == "align":
                return "align", self._align(envelope.round, body)
        if envelope.kind != "request":
            raise RefusedError(f"a {envelope.kind} frame is not asked of a standing service")
        return "reply", self._embed(body, policy)

    def _embed(self, body: bytes, policy: Policy) -> bytes:
        if message_type(body) != EmbedAt.__name__:
            raise RefusedError(f"message type {message_type(body)} is not allowed here")
        asked = decode(body, {}, self.spec.max_bytes)
        assert isinstance(asked, EmbedAt)
        places = asked.places.numpy()
        shelf = self.shelf
        if shelf is None or shelf.stamp != _stamp(self._path):
            with self.lock:
                self.session = secrets.token_hex(16)
            raise RefusedError("a frame of another session: the rows here have changed")
        most = policy.serve.rows_per_request
        if not 0 < len(places) <= most:
            raise RefusedError(f"{len(places):,} rows in one request, at most {most:,}")
        if len(np.unique(places)) != len(places) or int(places.max()) >= len(shelf.here):
            raise RefusedError("the request names a row twice, or one that was never aligned")
        if not shelf.here[places].all():
            raise RefusedError("the request names a row that is no longer here")
        rules = policy.serve
        limits = DayLimits(rules.requests_per_day, rules.rows_per_day)
        self.log.enter(shelf.keys[places], shelf.form, self.spec.run, limits)
        return encode(Embeddings(shelf.values[torch.from_numpy(places)]))

    @cached_property
    def _path(self) -> Path:
        return self._source().path

    # ------------------------------------------------------------ new customers

    def _align(self, step: int, body: bytes) -> bytes:
        """Private set intersection of ids that the active party has not asked about before; the
        policy's limits on alignments hold, and the ledger counts it."""
        if self._aligner is None:
            gate: Gate = self.local.gate()
            self._aligner = PassiveSide(self.kit.name, self._source, self._pair, gate)
        if step > 3:
            raise RefusedError("an alignment message of an unknown step")
        try:
            reply = self._aligner.handle_bytes(step, body)
        except AlignmentError as error:
            raise RefusedError(str(error)) from None
        if step == 3:
            alignment = self._pair.load()
            assert alignment is not None
            self.universe.add(Segment.of(alignment, self._source().ids()))
            self.shelf = None  # loaded when the active party greets again
        return reply


def _stamp(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_size
