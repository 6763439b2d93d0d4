"""The audit log: JSON lines in a hash chain, so that a changed, dropped or reordered line shows.

    hash_n = SHA-256( hash_{n-1} || line_n without its hash ),     hash_{-1} = 64 zeros

A line says who talked to whom, the message type, its bytes, the round and what was decided. It
holds no id, label, embedding or file name; the fields are a closed list. Cutting lines off the end
cannot be seen from the chain alone, so the newest hash is also kept in every checkpoint
(`verify(..., head=...)`).
"""

import hashlib
import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protoevfl.deploy.durable import DiskError
from protoevfl.errors import UserError

FIRST = "0" * 64
FIELDS = ("run", "peer", "event", "type", "bytes", "round", "decision", "reason")
LONGEST = 200  # characters of a reason


class TamperedError(UserError):
    """The log is not what was written."""


@dataclass
class AuditLog:
    """Appends to one file; opening it verifies what is there and sets a torn last line (a crash)
    aside."""

    path: Path
    count: int = 0
    head: str = FIRST

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._mend()
        self.count, self.head = verify(self.path) if self.path.exists() else (0, FIRST)

    def add(self, event: str, **facts: Any) -> str:
        """One more line, durable when it returns; gives the new head of the chain."""
        unknown = set(facts) - set(FIELDS)
        if unknown:
            raise ValueError(f"not a field of the audit log: {sorted(unknown)}")
        if "reason" in facts:
            facts["reason"] = " ".join(str(facts["reason"]).split())[:LONGEST]
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self._lock:
            line = {"n": self.count, "time": now, "event": event, **facts}
            head = _hash(self.head, line)
            self._append(json.dumps({**line, "hash": head}, sort_keys=True) + "\n")
            self.count, self.head = self.count + 1, head
            return head

    def _append(self, text: str) -> None:
        before = self.path.stat().st_size if self.path.exists() else 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(
                os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab"
            ) as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.truncate(self.path, before)  # half a line on a full disk
            short = f"it cannot write its audit log ({error.strerror})"
            raise DiskError(
                f"cannot write the audit log {self.path}: {error.strerror}", short
            ) from None

    def _mend(self) -> None:
        """A crash can tear the last line only: keep the pieces in a file of their own."""
        data = self.path.read_bytes() if self.path.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with self.path.with_suffix(".torn").open("ab") as aside:
                aside.write(data[whole:] + b"\n")
            os.truncate(self.path, whole)


def verify(path: Path, head: str | None = None) -> tuple[int, str]:
    """(number of lines, newest hash) of an untouched log, else TamperedError; `head` must occur in
    the chain."""
    newest, seen, count = FIRST, {FIRST}, 0
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the audit log {path}: {error}") from None
    for count, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            claimed = line.pop("hash")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise TamperedError(f"{path}: line {count} is not a line of an audit log") from None
        newest = _hash(newest, line)
        if line.get("n") != count - 1 or claimed != newest:
            raise TamperedError(
                f"{path}: line {count} was changed, or a line before it was dropped or moved"
            )
        seen.add(newest)
    if head is not None and head not in seen:
        raise TamperedError(
            f"{path}: lines were cut off the end; a checkpoint knows of a later one"
        )
    return count, newest


def _hash(previous: str, line: dict[str, Any]) -> str:
    return hashlib.sha256((previous + json.dumps(line, sort_keys=True)).encode()).hexdigest()
