"""One worker a run: a second one takes over, the first leaves by itself or is ended, a stranger is
never killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from protoevfl.deploy.run_lock import RunLock
from protoevfl.errors import UserError

HOLDER = (
    "import sys, time; from pathlib import Path; from protoevfl.deploy.run_lock import RunLock;"
    "RunLock(Path(sys.argv[1])).take('first'); print('held', flush=True); time.sleep(60)"
)
SQUATTER = (
    "import fcntl, sys, time; f = open(sys.argv[1] + '/lock', 'a+'); fcntl.flock(f, fcntl.LOCK_EX);"
    "print('held', flush=True); time.sleep(60)"
)
TAKER = (
    "import sys; from pathlib import Path; from protoevfl.deploy.run_lock import RunLock;"
    "RunLock(Path(sys.argv[1]), grace_s=float(sys.argv[2])).take('second'); print('held', "
    "flush=True)"
)


def start(code: str, *more: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *more], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_new_attempt_takes_over_and_the_old_worker_leaves(tmp_path: Path) -> None:
    first = start(HOLDER, str(tmp_path))
    assert json.loads((tmp_path / "lock").read_text())["pid"] == first.pid
    second = start(TAKER, str(tmp_path), "20")
    assert first.wait(5) == 1
    assert second.wait(5) == 0


def test_a_worker_that_hangs_is_ended(tmp_path: Path) -> None:
    first = start(HOLDER, str(tmp_path))
    first.send_signal(signal.SIGSTOP)
    second = start(TAKER, str(tmp_path), "0.5")
    assert first.wait(5) == -signal.SIGKILL
    assert second.wait(5) == 0


def test_a_process_that_has_only_the_number_of_the_holder_is_not_killed(tmp_path: Path) -> None:
    stranger = start(SQUATTER, str(tmp_path))
    (tmp_path / "lock").write_text(json.dumps({"pid": stranger.pid, "born": 1.0}))
    try:
        with pytest.raises(UserError, match=r"another worker holds .*protoevfl deploy stop"):
            RunLock(tmp_path, grace_s=0.3).take("second")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
