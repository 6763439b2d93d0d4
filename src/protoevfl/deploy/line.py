"""Frames between processes of one machine: many requests at a time over one pair of streams.

    packet = length of head (4 bytes) | length of body (4 bytes) | head (JSON) | body

The head of a request has a number that its answer repeats, so that answers may come in any order.
"""

import json
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from protoevfl.deploy.envelope import MAX_BODY, MAX_HEADER

_LENGTHS = struct.Struct(">II")
MOST = MAX_BODY + 2 * MAX_HEADER  # bytes of a body


class ClosedError(Exception):
    """The other process is gone."""


def write_packet(stream: BinaryIO, head: dict[str, Any], body: bytes) -> None:
    text = json.dumps(head).encode()
    stream.write(_LENGTHS.pack(len(text), len(body)) + text + body)
    stream.flush()


def read_packet(stream: BinaryIO) -> tuple[dict[str, Any], bytes]:
    """(head, body) of the next packet; ClosedError at the end of the stream."""
    head, body = _LENGTHS.unpack(_read(stream, _LENGTHS.size))
    if head > MAX_HEADER or body > MOST:
        raise ClosedError("a packet over the limit")
    facts = json.loads(_read(stream, head))
    return dict(facts), _read(stream, body)


def _read(stream: BinaryIO, size: int) -> bytes:
    try:
        data = stream.read(size)
    except (OSError, ValueError):
        data = b""
    if data is None or len(data) != size:
        raise ClosedError("the stream ended")
    return data


@dataclass
class Caller:
    """The asking end: `ask` may be called from any thread."""

    incoming: BinaryIO
    outgoing: BinaryIO
    ended: Callable[[], None] = lambda: None
    waiting: dict[int, "Future[tuple[dict[str, Any], bytes]]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self.open = True
        threading.Thread(target=self._listen, daemon=True, name="line").start()

    def ask(
        self, head: dict[str, Any], body: bytes, seconds: float
    ) -> tuple[dict[str, Any], bytes]:
        """The answer to one request; ClosedError or TimeoutError."""
        future: Future[tuple[dict[str, Any], bytes]] = Future()
        with self._lock:
            if not self.open:
                raise ClosedError("the other process is gone")
            self._number += 1
            number = self._number
            self.waiting[number] = future
            try:
                write_packet(self.outgoing, {**head, "number": number}, body)
            except (OSError, ValueError):
                self.waiting.pop(number, None)
                raise ClosedError("the other process is gone") from None
        try:
            return future.result(seconds)
        finally:
            self.waiting.pop(number, None)

    def _listen(self) -> None:
        try:
            while True:
                head, body = read_packet(self.incoming)
                if (future := self.waiting.get(int(head.get("number", 0)))) is not None:
                    future.set_result((head, body))
        except (ClosedError, ValueError, TypeError):
            pass
        with self._lock:
            self.open = False
        for future in list(self.waiting.values()):
            with suppress(Exception):
                future.set_exception(ClosedError("the other process is gone"))
        self.ended()


Handle = Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]]


def serve(incoming: BinaryIO, outgoing: BinaryIO, handle: Handle, threads: int = 8) -> None:
    """The answering end, until the stream ends: every request in a thread of a small pool."""
    from concurrent.futures import ThreadPoolExecutor

    lock = threading.Lock()

    def work(head: dict[str, Any], body: bytes) -> None:
        facts, answer = handle(head, body)
        with lock, suppress(OSError, ValueError):
            write_packet(outgoing, {**facts, "number": head.get("number", 0)}, answer)

    with ThreadPoolExecutor(threads, thread_name_prefix="line") as pool:
        while True:
            try:
                head, body = read_packet(incoming)
            except (ClosedError, ValueError):
                return
            pool.submit(work, head, body)
