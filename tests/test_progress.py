"""Bars: visible on a terminal only, silent when quiet, with done, total and time left."""

import os
import pty
import subprocess
import sys

import pytest

from protoevfl import progress
from protoevfl.progress import OUTPUT, Bars, bar, note


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OUTPUT, "quiet", True)


def test_nothing_is_drawn_when_stderr_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with bar("drawing", 3) as step:
        for done in range(4):
            step(done, 3)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("quiet")
def test_quiet_silences_bars_and_notes(capfd: pytest.CaptureFixture[str]) -> None:
    note("hello")
    with Bars() as bars:
        bars.show("x", 1, 2)
        bars.note("there")
        bars.drop("x")
    assert capfd.readouterr() == ("", "")


def test_notes_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    note("one")
    with Bars() as bars:
        bars.note("two")
    assert capfd.readouterr() == ("", "one\ntwo\n")


def test_lines_know_their_totals_and_can_start_again() -> None:
    with Bars(visible=True) as bars:
        bars.show("phase", 5, 10, "first")
        bars.show("runs", 1, 4)
        bars.show("phase", 1, 3, "second")
        shown = {t.description: (t.completed, t.total) for t in bars.progress.tasks}
        bars.drop("phase")
        bars.drop("never there")
        left = [t.description for t in bars.progress.tasks]
    assert shown == {"second": (1, 3), "runs": (1, 4)}
    assert left == ["runs"]


PROGRAM = """
import time
from protoevfl.progress import bar
with bar("drawing", 4) as step:
    for done in range(1, 4):
        time.sleep(0.3)
        step(done, 4)
    time.sleep(0.3)
print("result")
"""


def test_a_terminal_sees_done_of_total_and_the_time_left() -> None:
    master, terminal = pty.openpty()
    program = [sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    found = subprocess.run(
        program, stdout=subprocess.PIPE, stderr=terminal, env=environment, check=True, timeout=60
    )
    os.close(terminal)
    drawn = os.read(master, 1 << 16).decode()
    os.close(master)
    assert found.stdout == b"result\n"
    assert "drawing" in drawn
    assert "3/4" in drawn
    assert "left" in drawn
    assert "0:00:0" in drawn


def test_rich_is_not_imported_before_a_bar_is_drawn() -> None:
    code = f"import sys, {progress.__name__}; assert 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
