"""A job gets the process that waits, with what it must know; where none waits it starts as before."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.job_launcher_spec import JobProcessArgs
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher

from protoevfl.federation.engines import nvflare_launch
from protoevfl.federation.engines.nvflare_launch import Spare

# writes what it is told beside the kit, and ends
WAITING = """
import pathlib, sys
(pathlib.Path(sys.argv[1]) / "told").write_text(sys.stdin.readline())
"""


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spare:
    (tmp_path / "waiting_here.py").write_text(WAITING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(Spare, "prepare", lambda self, seconds: None)
    return Spare("waiting_here", tmp_path)


def test_a_job_is_told_to_the_process_that_waits(tmp_path: Path, waiting: Spare) -> None:
    waiting.start()
    before = waiting.process
    waiting.start()  # there is one
    assert waiting.process is before is not None
    process = waiting.take(["-m", "worker", "-n", "job 1"], {"TOKEN": "secret"})
    assert process is before
    assert process.wait(60) == 0
    told = json.loads((tmp_path / "told").read_text())
    assert told == {
        "arguments": ["-m", "worker", "-n", "job 1"],
        "environment": {"TOKEN": "secret"},
    }
    assert "secret" not in " ".join(map(str, process.args))  # type: ignore[arg-type]
    assert waiting.take([], {}) is None  # a process has one job


def test_a_process_that_has_ended_is_not_used(waiting: Spare) -> None:
    waiting.start()
    assert waiting.process is not None
    waiting.process.kill()
    waiting.process.wait(60)
    assert waiting.take([], {}) is None


def test_the_next_one_is_started_later(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    spare = Spare("no_such_module_anywhere", tmp_path)
    spare.prepare(0.05)
    deadline = time.monotonic() + 30
    while spare.process is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert spare.process is not None
    spare.process.wait(60)


class Context:
    """What NVFlare hands to a launcher."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_prop(self, key: str) -> Any:
        if key == FLContextKey.JOB_PROCESS_ARGS:
            module, token = ("-m", "worker"), ("-t", "secret")
            return {JobProcessArgs.EXE_MODULE: module, JobProcessArgs.AUTH_TOKEN: token}
        return self

    def get_root_dir(self) -> str:
        return str(self.folder)


def test_the_launcher_hands_its_job_over(
    tmp_path: Path, waiting: Spare, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, context = nvflare_launch.Launcher("waiting_here"), Context(tmp_path)
    launcher.handle_event(EventType.SYSTEM_BOOTSTRAP, context)
    assert (launcher.spare.module, launcher.spare.folder) == (waiting.module, waiting.folder)
    launcher.spare.start()
    handle = launcher.launch_job({}, context)
    handle.wait()
    assert json.loads((tmp_path / "told").read_text())["arguments"] == ["-m", "worker"]
    cold = ClientProcessJobLauncher, "launch_job", lambda *_: "as before"
    monkeypatch.setattr(*cold)
    assert launcher.launch_job({}, context) == "as before"


def test_a_waiting_process_ends_with_its_main_process(tmp_path: Path) -> None:
    """Even one that is killed: the pipe ends."""
    (tmp_path / "waiting_here.py").write_text(WAITING)
    code = (
        "import os, sys, pathlib\n"
        "from protoevfl.federation.engines.nvflare_launch import Spare\n"
        "Spare('waiting_here', pathlib.Path('.')).start()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=60, check=False)
    deadline = time.monotonic() + 60
    while not (tmp_path / "told").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (tmp_path / "told").read_text() == ""  # told nothing: the line ended
