"""Who hears of a run: one `Observer` for progress, figures and notes, whatever shows or keeps them.

    federation.train(observer)

`Observer` itself is silent. `Terminal` draws bars, `_Notebook` an HTML bar, `Logged` writes a log,
`tracking.Tracked` feeds MLflow and TensorBoard; `Together` passes everything on to several of them.
"""

import html
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from protoevfl.method import Report
from protoevfl.progress import Bars


class Observer:
    """Hears everything and says nothing."""

    def progress(self, what: str, done: int, total: int) -> None:
        """A piece of work is `done` of `total` (0: not known)."""

    def report(self, report: Report, run: int = 0) -> None:
        """A method's report on one of the runs that advance together."""

    def note(self, text: str) -> None:
        """A sentence that is to stay."""

    def finished(self, text: str, done: int, total: int) -> None:
        """One of `total` runs has ended, well or not; `text` says how."""


SILENT = Observer()


class Together(Observer):
    """Passes everything on to several observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers

    def progress(self, what: str, done: int, total: int) -> None:
        for observer in self.observers:
            observer.progress(what, done, total)

    def report(self, report: Report, run: int = 0) -> None:
        for observer in self.observers:
            observer.report(report, run)

    def note(self, text: str) -> None:
        for observer in self.observers:
            observer.note(text)

    def finished(self, text: str, done: int, total: int) -> None:
        for observer in self.observers:
            observer.finished(text, done, total)


class Terminal(Observer):
    """Bars for all runs, for the method's phases and for the work within; notes stand above."""

    def __init__(self, bars: Bars, title: str = "") -> None:
        self.bars = bars
        self.title = title

    def progress(self, what: str, done: int, total: int) -> None:
        self.bars.show("work", done, total, what)

    def report(self, report: Report, run: int = 0) -> None:
        title = f"{self.title}: {report.phase}" if self.title else report.phase
        if report.step < report.steps:
            self.bars.show("run", report.step, report.steps, title)
        else:  # a finished phase gives way to a bar without end
            self.bars.show("run", 0, 0, f"after {title}")

    def note(self, text: str) -> None:
        self.bars.note(text)

    def finished(self, text: str, done: int, total: int) -> None:
        self.bars.show("runs", done, total, "all runs")
        self.bars.note(text)


class Logged(Observer):
    """One line of the log per report and per finished run."""

    def __init__(self, log: logging.Logger, title: str = "", level: int = logging.INFO) -> None:
        self.log = log
        self.title = title
        self.level = level

    def report(self, report: Report, run: int = 0) -> None:
        figures = dict(report.values)
        self.log.log(
            self.level, "%s run %d: %s %d/%d %s", self.title, run, report.phase, report.step,
            report.steps, figures,
        )  # fmt: skip

    def note(self, text: str) -> None:
        self.log.log(self.level, "%s", text)

    def finished(self, text: str, done: int, total: int) -> None:
        self.log.info("%s", text)


class _Notebook(Observer):
    """An HTML bar that is drawn anew at most four times a second."""

    def __init__(self) -> None:
        from IPython.display import HTML, display  # type: ignore[import-not-found]

        self.html = HTML
        self.start = time.monotonic()
        self.drawn = 0.0
        self.handle = display(HTML(self.text("starting", 0, 0)), display_id=True)

    def progress(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self.drawn >= 0.25 or done == total:
            self.drawn = time.monotonic()
            self.handle.update(self.html(self.text(what, done, total)))

    def report(self, report: Report, run: int = 0) -> None:
        self.progress(report.phase, report.step, report.steps)

    def close(self) -> None:
        self.handle.update(self.html(self.text("done", 1, 1)))

    def text(self, what: str, done: int, total: int) -> str:
        known = f' value="{done}" max="{total}"' if total else ""
        count = f" {done}/{total}" if total > 1 else ""
        seconds = time.monotonic() - self.start
        return (
            f"<div><progress{known}></progress> {html.escape(what)}{count}, {seconds:.0f} s</div>"
        )


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextmanager
def for_a_fit(wanted: bool | str) -> Iterator[Observer]:
    """The observer of a `fit`: a notebook's bar, the terminal's bars ("auto": if there is one), or
    nobody."""
    if wanted and _in_notebook():
        bar = _Notebook()
        yield bar
        bar.close()
        return
    with Bars(None if wanted == "auto" else bool(wanted)) as bars:
        yield Terminal(bars)
