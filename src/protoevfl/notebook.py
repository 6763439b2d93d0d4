"""Progress of a fit: a bar in a notebook, lines in a terminal, silence elsewhere.

with watching("auto") as (watch, progress):
    train(..., watch=watch, progress=progress)
"""

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from protoevfl.method import Report
from protoevfl.progress import Bars

Watch = Callable[[Report], None]
Progress = Callable[[str, int, int], None]


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class NotebookBar:
    """An HTML bar that is drawn anew at most four times a second."""

    def __init__(self) -> None:
        from IPython.display import HTML, display  # type: ignore[import-not-found]

        self.html, self.start, self.drawn = HTML, time.monotonic(), 0.0
        self.handle = display(HTML(self.text("starting", 0, 0)), display_id=True)

    def show(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self.drawn >= 0.25 or done == total:
            self.drawn = time.monotonic()
            self.handle.update(self.html(self.text(what, done, total)))

    def close(self) -> None:
        self.handle.update(self.html(self.text("done", 1, 1)))

    def text(self, what: str, done: int, total: int) -> str:
        bar = f'<progress value="{done}" max="{total}"></progress>' if total else "<progress></progress>"
        count = f" {done}/{total}" if total > 1 else ""
        return f"<div>{bar} {html.escape(what)}{count}, {time.monotonic() - self.start:.0f} s</div>"


@contextmanager
def watching(wanted: bool | str) -> Iterator[tuple[Watch, Progress]]:
    """(watch, progress) for `train`: a notebook bar, terminal bars, or nothing."""
    if wanted and in_notebook():
        bar = NotebookBar()
        yield lambda report: bar.show(report.phase, report.step, report.steps), bar.show
        bar.close()
        return
    with Bars(None if wanted == "auto" else bool(wanted)) as bars:
        show: Any = bars.show
        yield (
            lambda report: show("run", report.step, report.steps, report.phase),
            lambda what, done, total: show("work", done, total, what),
        )
