"""Processes are told apart by when they began; only those of a kit are found; those that do not
listen are killed."""

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from protoevfl.deploy import os_process

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def child(*more: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF, *more], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_a_process_has_a_birth_until_it_is_gone() -> None:
    mine = os_process.born(os.getpid())
    assert mine is not None
    assert mine == os_process.born(os.getpid())
    other = child()
    try:
        assert os_process.born(other.pid) is not None
    finally:
        other.kill()
    deadline = time.monotonic() + 5
    # a zombie until it is waited for
    while os_process.born(other.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert os_process.born(other.pid) is None
    other.wait()
    assert os_process.born(other.pid) is None


def test_only_processes_of_the_kit_are_found(tmp_path: Path) -> None:
    kit, marked, other = str(tmp_path), child(os_process.MARK, str(tmp_path)), child(str(tmp_path))
    try:
        assert [p.pid for p in os_process.of_folder(Path(kit))] == [marked.pid]
        assert not os_process.of_folder(tmp_path / "another")
    finally:
        for process in (marked, other):
            process.kill()
            process.wait()


def test_a_stopped_and_deaf_process_ends_all_the_same() -> None:
    process = child()
    process.send_signal(signal.SIGSTOP)
    os_process.end([psutil.Process(process.pid)], seconds=0.5)
    assert os_process.born(process.pid) is None


THREADS_ALLOCATE = """
import ctypes, sys, threading
from protoevfl.deploy.os_process import share_heaps
if sys.argv[1] == "shared": share_heaps()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(8)
def allocate():
    together.wait()
    for size in range(1000, 2000): libc.malloc(ctypes.c_size_t(size))
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_stats()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="heaps of threads are glibc's")
def test_threads_share_two_heaps() -> None:
    def heaps(how: str) -> int:
        command = [sys.executable, "-c", THREADS_ALLOCATE, how]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr.count(
            "Arena "
        )

    assert heaps("shared") <= os_process.MOST_ARENAS < heaps("as they come")
