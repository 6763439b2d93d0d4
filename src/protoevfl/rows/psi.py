"""Curve points in bulk: encrypt and re-encrypt long lists under one key, in several processes.

    H(x)^a^b = H(x)^b^a:  two keys commute, so equal ids meet as equal points and nobody sees the
    other's ids

openmined-psi works on one core; a list is cut into chunks that worker processes handle under the
same key. Lists of points are joined bytes, POINT bytes each; `table` views them as an array that
sorts and searches fast.
"""

import json
import os
import queue
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protoevfl.errors import UserError
from protoevfl.rows import psi_worker
from protoevfl.rows.psi_worker import ENCRYPT, JOB, KEY, POINT, REENCRYPT, RESULT

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of the group P-256
CHUNK = 2000  # ids a job: a quarter of a second, so that progress moves
Points = bytes
Progress = Callable[[int, int], None]  # (done, total)


def new_key() -> bytes:
    """A fresh secret exponent, from the library's cryptographic source."""
    _require()
    from private_set_intersection.python import client

    secret: bytes = client.CreateWithNewKey(True).GetPrivateKeyBytes()
    return secret.rjust(KEY, b"\0")


def inverse(key: bytes) -> bytes:
    """The key that undoes `key`: k * k^-1 = 1 modulo the order of the group."""
    return pow(int.from_bytes(key), -1, ORDER).to_bytes(KEY)


def table(points: Points) -> NDArray[Any]:
    """(n,) view of joined points. To compare, sort and search only: numpy drops trailing zero bytes
    of single items, which changes no comparison between points of equal length but would shorten a
    point taken out."""
    return np.frombuffer(points, dtype=f"S{POINT}")


def _require() -> None:
    """Say what to install when openmined-psi is not there."""
    if find_spec("private_set_intersection") is None:
        raise UserError(
            "private set intersection needs openmined-psi: pip install 'protoevfl[align]'"
        )


class Curve:
    """Runs the two operations, in `processes` worker processes when the list is long enough to pay
    for them."""

    def __init__(self, workers: "list[subprocess.Popen[bytes]]") -> None:
        self._free: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        for worker in workers:
            self._free.put(worker)
        self._threads = max(1, len(workers))
        self._local = not workers

    def encrypt(self, key: bytes, ids: list[str], progress: Progress | None = None) -> Points:
        """H(id)^key, joined, in order."""
        chunks = [json.dumps(ids[i : i + CHUNK]).encode() for i in range(0, len(ids), CHUNK)]
        return self._run(ENCRYPT, key, chunks, len(ids), progress)

    def reencrypt(self, key: bytes, points: Points, progress: Progress | None = None) -> Points:
        """point^key, joined, in order."""
        step = CHUNK * POINT
        chunks = [points[i : i + step] for i in range(0, len(points), step)]
        return self._run(REENCRYPT, key, chunks, len(points) // POINT, progress)

    def _run(
        self,
        operation: bytes,
        key: bytes,
        chunks: list[bytes],
        total: int,
        progress: Progress | None,
    ) -> Points:
        done, parts = 0, []
        with ThreadPoolExecutor(self._threads) as pool:
            for part in pool.map(lambda chunk: self._job(operation, key, chunk), chunks):
                parts.append(part)
                done += len(part) // POINT
                if progress is not None:
                    progress(done, total)
        return b"".join(parts)

    def _job(self, operation: bytes, key: bytes, payload: bytes) -> bytes:
        if self._local:
            try:
                return psi_worker.perform(operation, key, payload)
            except RuntimeError as error:
                raise UserError(
                    f"private set intersection failed: {_first_line(str(error))}"
                ) from None
        worker = self._free.get()
        try:
            return _ask(worker, operation, key, payload)
        finally:
            self._free.put(worker)


@contextmanager
def curve(processes: int = 0, ids: int | None = None) -> Iterator[Curve]:
    """A `Curve` whose workers end with the block; 0 processes means one a core, few `ids` means
    none at all."""
    _require()
    count = processes or (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    workers = (
        [] if count == 1 or (ids is not None and ids <= CHUNK) else [_start() for _ in range(count)]
    )
    try:
        yield Curve(workers)
    finally:
        for worker in workers:
            worker.kill()  # it holds nothing that must be saved
            worker.communicate()


def _start() -> "subprocess.Popen[bytes]":
    # -P: the folder of the script stays off sys.path, where files.py and others could hide real
    # modules
    command = [sys.executable, "-P", str(Path(psi_worker.__file__))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _ask(worker: "subprocess.Popen[bytes]", operation: bytes, key: bytes, payload: bytes) -> bytes:
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(JOB.pack(operation, key, len(payload)) + payload)
        worker.stdin.flush()
        status, size = RESULT.unpack(worker.stdout.read(RESULT.size))
        result = worker.stdout.read(size)
    except (OSError, ValueError, struct.error):
        raise UserError(
            "a worker process of the alignment ended unexpectedly; run it again"
        ) from None
    if status != b"+":
        raise UserError(
            f"private set intersection failed: {_first_line(result.decode(errors='replace'))}"
        )
    return result


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "unknown error"
