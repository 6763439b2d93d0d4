"""The process that waits for a job becomes that job, and is no job process before."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from protoevfl.deploy import os_process, processes, spare
from protoevfl.deploy.kit import open_kit
from protoevfl.deploy.provision import Project, provision

pytestmark = pytest.mark.skipif(not spare.NAME.exists(), reason="Linux names processes there")

# as main() does it, without the seconds of loading
CODE = "import sys; from protoevfl.deploy import spare; spare.preload = lambda: None; spare.main()"
JOB = """
import os, pathlib, sys, time
pathlib.Path("ran").write_text(" ".join([__name__, *sys.argv[1:], os.environ["TOKEN"]]))
time.sleep(60)
"""


def waiting(folder: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, os_process.SPARE, str(folder)],
        cwd=folder,
        stdin=subprocess.PIPE,
    )
    until(lambda: os_process.waits(psutil.Process(process.pid)))
    return process


def until(true: object) -> None:
    deadline = time.monotonic() + 60
    while not true() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.02)
    assert true()  # type: ignore[operator]


def test_it_becomes_the_job(tmp_path: Path) -> None:
    made = provision(
        Project("p", "bank", "localhost", 1, "h", {"bank": "b", "shop": "s"}), tmp_path
    )
    kit = open_kit(made["shop"])
    (kit.folder / "job_here.py").write_text(JOB)
    process = waiting(kit.folder)
    try:
        assert processes.status(kit).workers == ()
        assert [p.pid for p in os_process.of_folder(kit.folder)] == [process.pid]
        order = {"arguments": ["-m", "job_here", "a b"], "environment": {"TOKEN": "t"}}
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.close()
        until((kit.folder / "ran").exists)
        until(lambda: (kit.folder / "ran").read_text() == "__main__ a b t")
        assert processes.status(kit).workers == (process.pid,)
        assert processes.stop(kit, seconds=5) == 1
    finally:
        process.kill()
        process.wait()


def test_it_ends_when_nobody_can_give_it_a_job(tmp_path: Path) -> None:
    process = waiting(tmp_path)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


def test_another_process_does_not_wait() -> None:
    assert not os_process.waits(psutil.Process(os.getpid()))
