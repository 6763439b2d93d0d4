"""One observer for all: a bar in a notebook, bars in a terminal, a log, several at once, nothing
where nobody looks."""

import logging
import sys
import types
from typing import Any

import pytest

from protoevfl.method import Report
from protoevfl.observer import SILENT, Logged, Observer, Terminal, Together, _in_notebook, for_a_fit
from protoevfl.progress import Bars


class ZMQInteractiveShell:
    """The name by which a Jupyter kernel is known."""


class Handle:
    shown: list[str] = []  # noqa: RUF012

    def update(self, html: str) -> None:
        self.shown.append(html)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    shell: Any = types.ModuleType("IPython")
    shell.get_ipython = ZMQInteractiveShell
    display: Any = types.ModuleType("IPython.display")
    display.HTML = str
    Handle.shown = []
    display.display = lambda html, display_id: Handle.shown.append(html) or Handle()
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return Handle.shown


def test_a_notebook_shows_a_bar(notebook: list[str]) -> None:
    assert _in_notebook()
    with for_a_fit("auto") as observer:
        observer.progress("bank: <fit>", 3, 3)
        observer.report(Report("head", 1, 1))
    assert '<progress value="3" max="3"></progress> bank: &lt;fit&gt; 3/3' in notebook[1]
    assert "head" in notebook[2]
    assert "done" in Handle.shown[-1]


def test_elsewhere_it_is_silent_or_off(
    capsys: pytest.CaptureFixture[str], notebook: list[str]
) -> None:
    with for_a_fit(False) as observer:
        observer.progress("bank", 1, 2)
        observer.report(Report("head", 1, 1))
    assert not notebook
    assert capsys.readouterr() == ("", "")


def test_a_finished_phase_leaves_no_bar_at_its_end() -> None:
    with Bars(visible=True) as bars:
        observer = Terminal(bars, "vanilla")
        observer.report(Report("warm-up", 3, 10))
        before = [(t.description, t.completed, t.total) for t in bars.progress.tasks]
        observer.report(Report("warm-up", 10, 10))
        after = [(t.description, t.completed, t.total) for t in bars.progress.tasks]
    assert before == [("vanilla: warm-up", 3, 10)]
    assert after == [("after vanilla: warm-up", 0, None)]


def test_several_observers_hear_the_same() -> None:
    class Ear(Observer):
        def __init__(self) -> None:
            self.heard: list[object] = []

        def progress(self, what: str, done: int, total: int) -> None:
            self.heard.append((what, done, total))

        def report(self, report: Report, run: int = 0) -> None:
            self.heard.append((report.phase, run))

        def note(self, text: str) -> None:
            self.heard.append(text)

    ears = [Ear(), Ear()]
    for observer in (Together([*ears, SILENT]), SILENT):
        observer.progress("reading ids", 1, 3)
        observer.report(Report("head"), run=2)
        observer.note("one column is not used")
    expected = [("reading ids", 1, 3), ("head", 2), "one column is not used"]
    assert [ear.heard for ear in ears] == [expected, expected]


def test_the_log_has_one_line_per_report(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        observer = Logged(logging.getLogger("run"), "vanilla")
        observer.report(Report("rounds", 2, 4, {"loss": 0.5}), run=1)
        observer.progress("epoch", 1, 2)
    assert [record.message for record in caplog.records] == [
        "vanilla run 1: rounds 2/4 {'loss': 0.5}"
    ]
