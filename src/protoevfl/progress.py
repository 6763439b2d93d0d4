"""What a command tells while it works: bars with the time left, and notes; all on stderr, so that
stdout is the result.

    with bar("drawing") as step:          # step(done, total), as often as you like
        render(..., progress=step)

    with Bars() as bars:                  # several lines at once
        bars.show("runs", 2, 10)
        bars.show("vanilla, seed 3", 17, 60)
        bars.drop("vanilla, seed 3")

Nothing is drawn with --quiet or when stderr is not a terminal. Rich is imported when the first bar
is drawn.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

Step = Callable[[int, int], None]  # (done, total); total 0 means that it is not known


@dataclass
class _Output:
    """How much is told; the command line sets it once (--quiet, --json)."""

    quiet: bool = False
    json: bool = False


OUTPUT = _Output()


def is_secondary_rank() -> bool:
    """Whether this is one of torchrun's processes but the first: that one alone speaks and writes
    files."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0"


def note(text: str) -> None:
    """One line of comment for the user, unless --quiet."""
    if not OUTPUT.quiet:
        print(text, file=sys.stderr, flush=True)


def size(count: float) -> str:
    """Bytes as a person reads them.

    >>> size(0), size(181_440), size(65_845_440)
    ('0', '181 kB', '65.8 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f}"


def duration(seconds: float) -> str:
    """
    >>> duration(7.26), duration(95), duration(7300)
    ('7.3 s', '1 min 35 s', '2 h 1 min')
    """
    seconds = round(seconds, 1)  # so that 59.97 is a minute and not 60.0 s
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


class Bars:
    """Lines with title, bar, done of total, time passed and time left; gone when the block ends."""

    def __init__(self, visible: bool | None = None) -> None:
        self.visible = (not OUTPUT.quiet and sys.stderr.isatty()) if visible is None else visible
        self.lines: dict[str, Any] = {}
        self.progress: Any = None

    def __enter__(self) -> Self:
        if self.visible:
            self.progress = _rich_progress()
            self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.progress is not None:
            self.progress.stop()

    def show(self, line: str, done: int, total: int = 0, title: str | None = None) -> None:
        """Draws or updates a line; a smaller `done` or another `total` (a new phase) starts its
        clock again."""
        if self.progress is None:
            return
        task = self.lines.get(line)
        if task is not None and (
            done < self._of(task).completed or (total or None) != self._of(task).total
        ):
            self.drop(line)  # rich cannot take a total back, and a new phase has its own time
        if line not in self.lines:
            self.lines[line] = self.progress.add_task(title or line, total=total or None)
        self.progress.update(self.lines[line], completed=done, description=title or line)

    def _of(self, task: Any) -> Any:
        return self.progress.tasks[self.progress.task_ids.index(task)]

    def drop(self, line: str) -> None:
        """Takes a line away."""
        if line in self.lines:
            self.progress.remove_task(self.lines.pop(line))

    def note(self, text: str) -> None:
        """A lasting line above the bars."""
        if self.progress is None:
            note(text)
        else:
            self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def bar(title: str, total: int = 0, visible: bool | None = None) -> Iterator[Step]:
    """One bar; gives the function that moves it."""
    with Bars(visible) as bars:
        bars.show(title, 0, total)
        yield lambda done, known_total: bars.show(title, done, known_total or total)


def _rich_progress() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4)
