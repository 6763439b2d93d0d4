"""Every row that a standing service sent, on disk before it leaves, many times a second.

The ledger (row_ledger.py) is one file that is written anew for every entry, which a service cannot
wait for. So a request is a short record appended to a log, synced; from time to time, and whenever a
process starts, the records are entered in the ledger under a number of their own and the log begins
again. A crash between the two changes nothing: the ledger knows the number.

    record = time (8 bytes) | number of rows (4) | length of the run's name (2) | form (1) | name | keys | CRC (4)
"""

import os
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from protoevfl.deploy.durable import DiskError
from protoevfl.deploy.row_ledger import DAY_S, FORMS, Keys, LimitError, RowLedger

_HEAD = struct.Struct(">dIHB")
_CRC = struct.Struct(">I")
MINUTE_S = 60.0
MOST_RECORDS = 5_000  # in the log before they are entered in the ledger


@dataclass(frozen=True)
class DayLimits:
    """[serve] of policy.toml."""

    requests: int
    rows: int


@dataclass(frozen=True)
class Record:
    """One answered request."""

    time: float
    run: str
    form: str
    keys: Keys

    def packed(self) -> bytes:
        name = self.run.encode()
        head = _HEAD.pack(self.time, len(self.keys), len(name), FORMS.index(self.form))
        body = head + name + self.keys.astype(">i8").tobytes()
        return body + _CRC.pack(zlib.crc32(body))


def records(data: bytes) -> Iterator[tuple[Record, int]]:
    """(record, where it ends) of a log, up to one that a crash has torn."""
    start = 0
    while start + _HEAD.size <= len(data):
        when, rows, length, form = _HEAD.unpack_from(data, start)
        keys = start + _HEAD.size + length
        end = keys + 8 * rows
        if end + _CRC.size > len(data) or form >= len(FORMS):
            return
        if zlib.crc32(data[start:end]) != _CRC.unpack_from(data, end)[0]:
            return
        name = data[start + _HEAD.size : keys].decode(errors="replace")
        numbers = np.frombuffer(data[keys:end], dtype=">i8").astype(np.int64)
        yield Record(when, name, FORMS[form], numbers), end + _CRC.size
        start = end + _CRC.size


@dataclass
class ServingLog:
    """The account of one party's standing process with the active party, over all runs."""

    ledger: RowLedger
    clock: Callable[[], float] = time.time
    today: deque[tuple[float, int, int]] = field(default_factory=deque)  # (until, requests, rows)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._sums = (0, 0)  # of `today`
        self._path = self.ledger.folder / "serving.log"
        self._pending: list[Record] = []
        for entry in self.ledger.served(self.clock() - DAY_S):
            self._note(*entry)
        if self._path.exists():
            self._pending = [record for record, _ in records(self._path.read_bytes())]
        self._counts: dict[int, int] = self.ledger.totals()
        for record in self._pending:
            self._count(record.keys)
            self._note(record.time, 1, len(record.keys))
        self._fold()
        self._file: BinaryIO = self._opened()

    def used(self) -> tuple[int, int]:
        """(requests, rows) in the last 24 hours, or up to a minute longer."""
        since = self.clock() - DAY_S
        while self.today and self.today[0][0] <= since:
            _, requests, rows = self.today.popleft()
            self._sums = (self._sums[0] - requests, self._sums[1] - rows)
        return self._sums

    def _note(self, when: float, requests: int, rows: int) -> None:
        """One entry for each minute, so that a day needs the same memory however many ask."""
        if self.today and when < self.today[-1][0]:
            until, before, rows_before = self.today.pop()
            self.today.append((until, before + requests, rows_before + rows))
        else:
            self.today.append((when + MINUTE_S, requests, rows))
        self._sums = (self._sums[0] + requests, self._sums[1] + rows)

    def enter(self, keys: Keys, form: str, run: str, limits: DayLimits) -> None:
        """These rows leave now; LimitError beyond a limit, and then nothing is entered."""
        with self._lock:
            self._check(keys, limits)
            record = Record(self.clock(), run, form, keys)
            self._append(record.packed())
            self._pending.append(record)
            self._count(keys)
            self._note(record.time, 1, len(keys))
            if len(self._pending) >= MOST_RECORDS:
                self._file.close()
                self._fold()
                self._file = self._opened()

    def _check(self, keys: Keys, limits: DayLimits) -> None:
        requests, rows = self.used()
        if requests >= limits.requests:
            raise LimitError(
                f"{requests:,} requests in 24 hours, at most {limits.requests:,} "
                "(requests_per_day under [serve] in policy.toml)"
            )
        if rows + len(keys) > limits.rows:
            raise LimitError(
                f"{rows:,} rows in 24 hours and {len(keys):,} more, at most {limits.rows:,} "
                "(rows_per_day under [serve] in policy.toml)"
            )
        most = self.ledger.limits.sends
        over = sum(self._counts.get(key, 0) >= most for key in keys.tolist())
        if over:
            raise LimitError(
                f"{over:,} rows of this party have gone to {self.ledger.partner} {most} times, over "
                "all runs: its limit (max_sends in policy.toml)"
            )

    def _count(self, keys: Keys) -> None:
        for key in keys.tolist():
            self._counts[key] = self._counts.get(key, 0) + 1

    def _opened(self) -> BinaryIO:
        return open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")

    def _append(self, data: bytes) -> None:
        try:
            before = self._file.tell()
            self._file.write(data)
            self._file.flush()
            os.fdatasync(self._file.fileno())
        except OSError as error:
            with open(self._path, "ab") as file:
                file.truncate(before)
            short = f"it cannot write its ledger ({error.strerror})"
            raise DiskError(f"cannot write {self._path}: {error.strerror}", short) from None

    def _fold(self) -> None:
        """Enter what the log holds in the ledger, and begin the log anew."""
        if self._pending:
            groups: dict[tuple[str, str], list[Record]] = {}
            for record in self._pending:
                groups.setdefault((record.run, record.form), []).append(record)
            for (run, form), found in groups.items():
                name = f"served until {found[-1].time!r}"
                self.ledger.left_often([r.keys for r in found], form, run, name, found[-1].time)
        self._pending = []
        self._path.unlink(missing_ok=True)
