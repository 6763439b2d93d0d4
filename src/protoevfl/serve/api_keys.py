"""Keys of the callers of the prediction service: a file of salted hashes that only its owner may
read, and how much each caller may ask.

A key is `NAME.SECRET` with 256 random bits; it is shown once, when it is made.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from protoevfl.deploy import durable
from protoevfl.errors import UserError

FILE = "api_keys.json"
USED = "api_keys_used.json"  # rows of today by caller, booked ahead
AHEAD = 100  # of a day's rows, the hundredth part is booked at a time
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
DAY_S = 24 * 3600.0
_NOBODY = "0" * 64  # compared with where there is no such name, so that it takes as long


@dataclass(frozen=True)
class Entry:
    """One caller."""

    name: str
    salt: str
    hash: str
    per_minute: int = 6_000  # requests
    rows_per_day: int = 1_000_000


class KeyRefusedError(UserError):
    """No such key."""


class TooManyError(UserError):
    """A caller's own limit is reached."""


def read(path: Path) -> dict[str, Entry]:
    """{name: caller}; UserError where others could read the file."""
    if not path.exists():
        return {}
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise UserError(f"{path} can be read by others: chmod 600 {path}")
    try:
        return {e["name"]: Entry(**e) for e in json.loads(path.read_text())}
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError(f"{path} is damaged; make new keys (`deploy key`)") from None


def _write(path: Path, entries: dict[str, Entry]) -> None:
    durable.write(path, json.dumps([asdict(e) for e in entries.values()], indent=1).encode())
    os.chmod(path, 0o600)


def add(path: Path, name: str, per_minute: int, rows_per_day: int) -> str:
    """A new key for a caller; the same name again replaces its key."""
    if NAME.fullmatch(name) is None:
        raise UserError(f"{name!r}: a caller's name has small letters, digits and dashes")
    secret, salt = secrets.token_urlsafe(32), secrets.token_hex(16)
    entries = read(path)
    entries[name] = Entry(name, salt, _hash(salt, secret), per_minute, rows_per_day)
    _write(path, entries)
    return f"{name}.{secret}"


def remove(path: Path, name: str) -> None:
    entries = read(path)
    if name not in entries:
        raise UserError(f"no caller is named {name!r}; these are: {', '.join(entries) or 'none'}")
    del entries[name]
    _write(path, entries)


def _hash(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}.{secret}".encode()).hexdigest()


@dataclass
class Callers:
    """Who may ask, and what each has asked so far; the file is read anew when it changed.

    Rows of a day hold over restarts: they are booked ahead, on disk before they are asked for, and
    what was booked and not used is used up by a restart.
    """

    path: Path
    clock: Callable[[], float] = time.time
    _used: dict[str, list[float]] = field(default_factory=dict)  # minute, requests, day, rows
    _booked: dict[str, tuple[float, float]] = field(default_factory=dict)  # day, rows

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._stamp = -1
        self._entries: dict[str, Entry] = {}
        self.entries()
        booked = self.path.with_name(USED)
        if booked.exists():
            try:
                facts = json.loads(booked.read_text())
                self._booked = {
                    str(n): (float(day), float(rows)) for n, (day, rows) in facts.items()
                }
            except (OSError, ValueError, TypeError, AttributeError):
                raise UserError(f"{booked} is damaged; remove it to begin the day anew") from None
        self._used = {name: [0, 0, day, rows] for name, (day, rows) in self._booked.items()}

    def entries(self) -> dict[str, Entry]:
        stamp = self.path.stat().st_mtime_ns if self.path.exists() else 0
        if stamp != self._stamp:
            self._entries, self._stamp = read(self.path), stamp
        return self._entries

    def known(self, key: str) -> Entry:
        """The caller whose key this is, or KeyRefusedError; as long for a wrong name as for a wrong
        secret."""
        name, _, secret = key.partition(".")
        entry = self.entries().get(name)
        salt, wanted = ("", _NOBODY) if entry is None else (entry.salt, entry.hash)
        same = hmac.compare_digest(_hash(salt, secret), wanted)
        if entry is None or not same:
            raise KeyRefusedError("the API key is missing or not known")
        return entry

    def count_request(self, entry: Entry) -> None:
        """One more request; TooManyError beyond the caller's limit."""
        with self._lock:
            used = self._of(entry)
            if used[1] >= entry.per_minute:
                raise TooManyError(
                    f"{entry.name}: more than {entry.per_minute:,} requests a minute"
                )
            used[1] += 1

    def count_rows(self, entry: Entry, rows: int) -> None:
        """So many rows are asked for, known ids or not; TooManyError beyond the limit."""
        with self._lock:
            used = self._of(entry)
            if used[3] + rows > entry.rows_per_day:
                raise TooManyError(
                    f"{entry.name}: {int(used[3]):,} of {entry.rows_per_day:,} rows a day are used, "
                    f"{rows:,} more were asked for"
                )
            self._book(entry, used[2], used[3] + rows)
            used[3] += rows

    def _book(self, entry: Entry, day: float, rows: float) -> None:
        """See that so many rows of the day are on disk, with some to come."""
        if self._booked.get(entry.name, (-1.0, 0.0)) >= (day, rows):
            return
        ahead = min(rows + entry.rows_per_day // AHEAD, entry.rows_per_day)
        booked = {**self._booked, entry.name: (day, ahead)}
        durable.write(self.path.with_name(USED), json.dumps(booked).encode())
        self._booked = booked

    def _of(self, entry: Entry) -> list[float]:
        now = self.clock()
        minute, day = now // 60, now // DAY_S
        used = self._used.setdefault(entry.name, [minute, 0, day, 0])
        if used[0] != minute:
            used[:2] = [minute, 0]
        if used[2] != day:
            used[2:] = [day, 0]
        return used
