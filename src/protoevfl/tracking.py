"""Experiment tracking: MLflow and TensorBoard fed from a run's reports, where they are installed.

    with start(["tensorboard=logs"], {"method": "proto_evfl"}) as tracker:
        federation.train(tracker)       # an observer: every report of a method
        tracker.finish(metrics)         # accuracy and the like, at the end

A report's figures are written as `<phase>/<name>`; what is not a number is left out.
"""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from protoevfl.errors import UserError
from protoevfl.method import Report
from protoevfl.observer import Observer

INSTALL = {"mlflow": "mlflow", "tensorboard": "tensorboard"}


class Writer(Protocol):
    """Where numbers go."""

    def number(self, name: str, value: float, step: int) -> None: ...
    def close(self) -> None: ...


class Tracker(Observer):
    """Hands the figures of reports to all writers."""

    def __init__(self, writers: Sequence[Writer] = ()) -> None:
        self.writers = list(writers)
        self.steps: dict[str, int] = {}

    def report(self, report: Report, run: int = 0) -> None:
        """One report of a method; reports of a phase are counted where they carry no step."""
        self.steps[report.phase] = step = max(
            report.step, self.steps.get(report.phase, 0) + (not report.step)
        )
        for name, value in _numbers(report.values):
            self._write(f"{report.phase}/{name}", value, step)
        if report.steps:
            self._write(f"{report.phase}/progress", report.step / report.steps, step)

    def finish(self, metrics: Mapping[str, Any]) -> None:
        """The figures of a finished run."""
        for name, value in _numbers({k: v for k, v in metrics.items() if k != "history"}):
            self._write(f"final/{name}", value, 0)

    def close(self) -> None:
        for writer in self.writers:
            writer.close()

    def _write(self, name: str, value: float, step: int) -> None:
        for writer in self.writers:
            writer.number(name, value, step)


class _MLflowWriter:
    """One MLflow run; `where` is a tracking URI, else MLflow's own default."""

    def __init__(self, where: str, settings: Mapping[str, Any]) -> None:
        import mlflow

        self.mlflow = mlflow
        if where:
            mlflow.set_tracking_uri(where)
        mlflow.set_experiment("protoevfl")
        mlflow.start_run()
        mlflow.log_params({name: str(value)[:250] for name, value in settings.items()})

    def number(self, name: str, value: float, step: int) -> None:
        allowed = "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)
        self.mlflow.log_metric(allowed, value, step=step)

    def close(self) -> None:
        self.mlflow.end_run()


class _TensorBoardWriter:
    """Event files in a folder."""

    def __init__(self, where: str, settings: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(where or "tensorboard")
        self.writer.add_text(
            "settings", "\n".join(f"{name} = {value}  " for name, value in settings.items())
        )

    def number(self, name: str, value: float, step: int) -> None:
        self.writer.add_scalar(name.replace(" ", "_"), value, step)

    def close(self) -> None:
        self.writer.close()


WRITERS: dict[str, Callable[[str, Mapping[str, Any]], Writer]] = {
    "mlflow": _MLflowWriter,
    "tensorboard": _TensorBoardWriter,
}


@contextlib.contextmanager
def start(wanted: Sequence[str], settings: Mapping[str, Any]) -> Iterator[Tracker]:
    """A tracker with a writer for each of `wanted`, "mlflow[=URI]" or "tensorboard[=FOLDER]";
    closed at the end."""
    for text in wanted:
        check(text.partition("=")[0])
    tracker = Tracker()
    try:
        for text in wanted:
            name, _, where = text.partition("=")
            tracker.writers.append(WRITERS[name](where, settings))
        yield tracker
    finally:
        tracker.close()


def check(name: str) -> None:
    """UserError where a tracker is unknown or not installed."""
    if name not in WRITERS:
        raise UserError(f"--track takes {' or '.join(WRITERS)}, not '{name}'")
    if importlib.util.find_spec(INSTALL[name]) is None:
        raise UserError(f"tracking with {name} needs it installed: pip install 'protoevfl[{name}]'")


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number in nested mappings and lists, with its path as a name; texts, flags and None are
    left out.

    >>> list(_numbers({"loss": 0.5, "prior": [0.2, 0.8], "test": {"auc": None, "accuracy": 1}}))
    [('loss', 0.5), ('prior/0', 0.2), ('prior/1', 0.8), ('test/accuracy', 1.0)]
    """
    for name, value in values.items():
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, list | tuple):
            yield from _numbers({str(i): v for i, v in enumerate(value[:100])}, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)
