"""In a party's main process: carries sealed frames between the hub and the processes that can open
them.

    at every party       a frame from the hub -> the party's standing process (standing_worker.py)
    at the active party  a frame of the prediction service, over the socket KIT/line.sock -> the hub

The main process opens no frame and loads no model. The standing process is started by the first
frame, or at once where the party was serving before; when it dies the next frame starts another.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from protoevfl.deploy import line
from protoevfl.deploy.kit import open_kit
from protoevfl.federation.engines.nvflare import CallError

SOCKET = "line.sock"
SERVING = "serving"  # a file in a kit: this party was serving, so the process is started at once
ANSWER_S = 600.0  # for one answer; an alignment may take long
RESTART_S = 1.0  # between two starts of the standing process


def open_relay(folder: Path, ask: Any) -> Any:
    """Opens the line of the kit in `folder`; `ask(party, frame, seconds)` reaches other parties."""
    kit = open_kit(folder)
    worker = Worker(kit.folder)
    if (kit.folder / SERVING).exists():
        worker.wake()
    if kit.name == kit.identity.active:
        listen(kit.folder, ask)
    return worker.answer


@dataclass
class Worker:
    """The party's standing process."""

    folder: Path
    started: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._caller: line.Caller | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def wake(self) -> line.Caller:
        """The process, started where it is not running."""
        with self._lock:
            if self._caller is None or not self._caller.open:
                self._start()
            assert self._caller is not None
            return self._caller

    def _start(self) -> None:
        if time.monotonic() - self.started < RESTART_S:
            raise CallError("the standing process ended and is not started again yet")
        self.started = time.monotonic()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "protoevfl.deploy.standing_worker", os.fspath(self.folder)],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._caller = line.Caller(
            cast(BinaryIO, self._process.stdout), cast(BinaryIO, self._process.stdin)
        )

    def answer(self, caller: str, frame: bytes) -> bytes:
        """The standing process's answer to a frame; CallError where there is none."""
        try:
            return self.wake().ask({"caller": caller}, frame, ANSWER_S)[1]
        except (line.ClosedError, TimeoutError) as error:
            raise CallError(str(error)) from None


# ------------------------------------------------------------ the active party's socket


@contextmanager
def reachable(folder: Path) -> Iterator[str]:
    """A name of the socket that is short enough, however long the kit's path is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)


def listen(folder: Path, ask: Any) -> None:
    """Carries frames of processes of this user to other parties, in the background."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with suppress(FileNotFoundError):
        (folder / SOCKET).unlink()
    before = os.umask(0o177)
    try:
        with reachable(folder) as name:
            server.bind(name)
    finally:
        os.umask(before)
    server.listen()

    def handle(head: dict[str, Any], frame: bytes) -> tuple[dict[str, Any], bytes]:
        try:
            return {"reached": True}, ask(str(head["party"]), frame, float(head["seconds"]))
        except Exception as error:  # whatever NVFlare raises: the line is down for now
            return {"reached": False, "reason": f"{error or type(error).__name__}"[:300]}, b""

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            stream = connection.makefile("wb", buffering=1 << 16)
            threading.Thread(
                target=line.serve,
                args=(connection.makefile("rb"), stream, handle, 32),
                daemon=True,
                name="line-client",
            ).start()

    threading.Thread(target=accept, daemon=True, name="line-socket").start()


@dataclass
class Line:
    """The prediction service's end of the socket; connects again by itself."""

    folder: Path

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._caller: line.Caller | None = None

    def send(self, party: str, frame: bytes, seconds: float) -> bytes:
        """The answer of a party to a frame, or CallError."""
        try:
            caller = self._connected()
            facts, answer = caller.ask({"party": party, "seconds": seconds}, frame, seconds + 0.5)
        except (OSError, line.ClosedError):
            raise CallError("this party's own main process is not running (deploy start)") from None
        except TimeoutError:
            raise CallError(f"no answer within {seconds:g} s") from None
        if not facts.get("reached"):
            raise CallError(str(facts.get("reason")))
        return answer

    def _connected(self) -> line.Caller:
        with self._lock:
            if self._caller is None or not self._caller.open:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                with reachable(self.folder) as name:
                    connection.connect(name)
                outgoing = cast(BinaryIO, connection.makefile("wb", buffering=1 << 16))
                self._caller = line.Caller(connection.makefile("rb"), outgoing)
            return self._caller
