"""A bar in a notebook, nothing where nobody looks."""

import sys
import types
from typing import Any

import pytest

from protoevfl.method import Report
from protoevfl.notebook import in_notebook, watching


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
    assert in_notebook()
    with watching("auto") as (watch, progress):
        progress("bank: <fit>", 3, 3)
        watch(Report("head", 1, 1))
    assert '<progress value="3" max="3"></progress> bank: &lt;fit&gt; 3/3' in notebook[1]
    assert "head" in notebook[2]
    assert "done" in Handle.shown[-1]


def test_elsewhere_it_is_silent_or_off(capsys: pytest.CaptureFixture[str], notebook: list[str]) -> None:
    with watching(False) as (watch, progress):
        progress("bank", 1, 2)
        watch(Report("head", 1, 1))
    assert not notebook
    assert capsys.readouterr() == ("", "")
