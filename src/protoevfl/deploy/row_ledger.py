"""What of this party's rows went to a partner, row by row, over all runs.

    ledger.left(rows, form, run, name)     these rows leave in this form; refused beyond a limit
    ledger.aligns(run), ledger.asked(...)  an alignment begins; so many ids are asked about

Every message type that carries something of rows goes through `left` before it leaves. A row is
known by a keyed hash of its id, so that a new run name, a restart, a sorted file or another column
changes nothing. An entry is on disk before the message leaves; `name` makes it unique, so a round
that is repeated after a crash is entered once. The ledger never falls back to an older state: where
its file is damaged nothing leaves until it is restored.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protoevfl.deploy.checkpoints import Checkpoint, CheckpointStore, DamagedError
from protoevfl.errors import UserError
from protoevfl.privacy.ledger import locked

# in which a row can leave; a new form is added at the end
FORMS = ("embedding", "features", "statistics", "parameters", "score", "other")
SERVED = "served"  # in the list of events: answers of a standing service, many at a time
DAY_S = 24 * 3600.0
MOST_EVENTS = 20_000  # remembered one by one; counts of rows are never dropped
Keys = NDArray[np.int64]  # keyed hashes of ids


@dataclass(frozen=True)
class Limits:
    """How much may leave (policy.toml)."""

    sends: int  # of one row, in all forms together, ever
    sends_per_run: int  # answers of one run with something of rows in them
    statistics_per_run: int
    ids: int  # asked about in one alignment
    least_ids: int
    alignments_per_day: int


class LimitError(UserError):
    """This party's own limit is reached; the text may be shown to the other side."""


def row_keys(secret: bytes, ids: Iterable[str]) -> Keys:
    """(n,) keyed hashes of ids; 63 bits."""
    digests = (hmac.digest(secret, i.encode(), hashlib.sha256)[:8] for i in ids)
    return np.frombuffer(b"".join(digests), dtype=np.int64) & np.int64(2**63 - 1)


@dataclass
class RowLedger:
    """The account of one party with one partner, in `folder`."""

    folder: Path
    partner: str
    limits: Limits
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._store = CheckpointStore(self.folder, keep=1)

    def left(self, rows: Keys, form: str, run: str, name: str) -> None:
        """Enter that these rows leave in this form, once per (run, name); LimitError beyond a
        limit, and then nothing is entered."""
        place = FORMS.index(form)
        with locked(self.folder / "rows"):
            book = self._read()
            if any((e["run"], e["name"]) == (run, name) for e in book.events):
                return
            keys = np.unique(rows)
            book = book.with_rows(keys)
            at = np.searchsorted(book.keys, keys)
            book.counts[at, place] += 1
            self._check(book, at, form, run)
            event = {"form": form, "run": run, "name": name, "rows": len(keys)}
            self._write(book, event)

    def left_often(
        self, sent: Sequence[Keys], form: str, run: str, name: str, until: float
    ) -> None:
        """Enter what a standing service has sent, once per (run, name); its limits were held before
        each answer (serving_log.py).

        sent    the rows of each answer
        until   when the last one left
        """
        place = FORMS.index(form)
        with locked(self.folder / "rows"):
            book = self._read()
            if any((e["run"], e["name"]) == (run, name) for e in book.events):
                return
            keys, times = np.unique(np.concatenate(sent), return_counts=True)
            book = book.with_rows(keys)
            book.counts[np.searchsorted(book.keys, keys), place] += times.astype(np.int32)
            event = {"form": SERVED, "run": run, "name": name, "rows": int(times.sum())}
            self._write(book, {**event, "requests": len(sent), "time": until})

    def served(self, since: float) -> list[tuple[float, int, int]]:
        """(time, requests, rows) of what a standing service sent later than `since`."""
        return [
            (float(e["time"]), int(e["requests"]), int(e["rows"]))
            for e in self._read().events
            if e["form"] == SERVED and e["time"] > since
        ]

    def totals(self) -> dict[int, int]:
        """How often each row has left, in all forms."""
        book = self._read()
        return dict(zip(book.keys.tolist(), book.counts.sum(1).tolist(), strict=True))

    def aligns(self, run: str) -> None:
        """An alignment begins; LimitError when there were too many in the last 24 hours."""
        with locked(self.folder / "rows"):
            book = self._read()
            since = self.clock() - DAY_S
            today = sum(e["form"] == "alignment" and e["time"] > since for e in book.events)
            if today >= self.limits.alignments_per_day:
                raise LimitError(
                    f"{today} alignments with {self.partner} in 24 hours, at most "
                    f"{self.limits.alignments_per_day} (max_alignments_per_day in policy.toml)"
                )
            self._write(book, {"form": "alignment", "run": run, "name": "", "rows": 0})

    def asked(self, ids: int, run: str) -> None:
        """So many ids are asked about; LimitError when there are too many or too few."""
        most, least = self.limits.ids, self.limits.least_ids
        if ids > most:
            raise LimitError(
                f"{self.partner} asks about {ids:,} ids, at most {most:,} (max_ids in policy.toml)"
            )
        if ids < least:
            raise LimitError(
                f"{self.partner} asks about {ids:,} ids, at least {least:,} (min_ids in "
                "policy.toml): fewer would single people out"
            )
        with locked(self.folder / "rows"):
            self._write(
                self._read(), {"form": "ids asked about", "run": run, "name": "", "rows": ids}
            )

    def summary(self) -> list[str]:
        """The account in words, a line per form."""
        book = self._read()
        total = book.counts.sum(1)
        lines = [
            f"{self.partner}: {len(book.keys):,} rows left, each at most {int(total.max()):,} of "
            f"{self.limits.sends:,} times"
            if len(book.keys)
            else f"{self.partner}: no row has left"
        ]
        for place, form in enumerate(FORMS):
            column = book.counts[:, place]
            if column.any():
                lines.append(
                    f"  as {form}: {int((column > 0).sum()):,} rows, {int(column.sum()):,} times"
                )
        asked = [e["rows"] for e in book.events if e["form"] == "ids asked about"]
        if asked:
            lines.append(f"  alignments: {len(asked):,}, {sum(asked):,} ids asked about")
        return lines

    def _check(self, book: "_Book", at: Keys, form: str, run: str) -> None:
        described = sum(e["form"] == "statistics" and e["run"] == run for e in book.events)
        if form == "statistics" and described >= self.limits.statistics_per_run:
            raise LimitError(
                f"the pool was described {described} times in run {run}, at most "
                f"{self.limits.statistics_per_run} (max_statistics_per_run in policy.toml)"
            )
        answers = sum(e["form"] in FORMS and e["run"] == run for e in book.events)
        if answers >= self.limits.sends_per_run:
            raise LimitError(
                f"{answers} answers of run {run} had something of rows in them, at most "
                f"{self.limits.sends_per_run} (max_sends_per_run in policy.toml)"
            )
        over = int((book.counts[at].sum(1) > self.limits.sends).sum())
        if over:
            raise LimitError(
                f"{over:,} rows of this party have gone to {self.partner} {self.limits.sends} "
                "times, over all runs: its limit (max_sends in policy.toml)"
            )

    def _read(self) -> "_Book":
        rounds = self._store.rounds()
        if not rounds:
            return _Book.empty()
        try:
            entry = self._store.load(rounds[-1])  # never an older one: it would forget what left
        except DamagedError as error:
            raise UserError(
                f"{error}; without the ledger nobody knows what left: restore it from a copy"
            ) from None
        keys, counts = (entry.tensors[name].numpy() for name in ("keys", "counts"))
        return _Book(entry.round, keys, counts, list(entry.header["events"]))

    def _write(self, book: "_Book", event: dict[str, Any]) -> None:
        events = [*book.events, {"time": self.clock(), **event}][-MOST_EVENTS:]
        tensors = {"keys": torch.from_numpy(book.keys), "counts": torch.from_numpy(book.counts)}
        header = {"partner": self.partner, "events": events}
        self._store.save(Checkpoint(book.number + 1, tensors, header))


@dataclass(frozen=True)
class _Book:
    """The ledger in memory: rows by rising key and how often each left in each form; what happened,
    the oldest first."""

    number: int
    keys: Keys  # (n,)
    counts: NDArray[np.int32]  # (n, forms)
    events: list[dict[str, Any]]

    @classmethod
    def empty(cls) -> "_Book":
        return cls(0, np.zeros(0, np.int64), np.zeros((0, len(FORMS)), np.int32), [])

    def with_rows(self, keys: Keys) -> "_Book":
        """The same with a line for each of these rows."""
        every = np.union1d(self.keys, keys)
        counts = np.zeros((len(every), len(FORMS)), np.int32)
        counts[np.searchsorted(every, self.keys), : self.counts.shape[1]] = self.counts
        return replace(self, keys=every, counts=counts)
