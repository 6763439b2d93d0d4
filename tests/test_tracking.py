"""Figures of reports reach the writers; what is not installed is said before training starts."""

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from protoevfl import tracking
from protoevfl.errors import UserError
from protoevfl.method import Report


class Memory:
    """A writer that remembers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float, int]] = []
        self.closed = False

    def number(self, name: str, value: float, step: int) -> None:
        self.seen.append((name, value, step))

    def close(self) -> None:
        self.closed = True


def test_reports_become_numbers_with_their_step() -> None:
    memory = Memory()
    tracker = tracking.Tracker([memory])
    tracker.report(
        Report("rounds", 1, 2, {"prior": torch.tensor([0.25, 0.75]), "text": "x", "flag": True})
    )
    tracker.report(Report("rounds", 2, 2, {"loss": 0.5}))
    tracker.finish({"test": {"accuracy": 0.9, "auc": None}, "history": [{"loss": 1.0}]})
    assert memory.seen == [
        ("rounds/prior/0", 0.25, 1),
        ("rounds/prior/1", 0.75, 1),
        ("rounds/progress", 0.5, 1),
        ("rounds/loss", 0.5, 2),
        ("rounds/progress", 1.0, 2),
        ("final/test/accuracy", pytest.approx(0.9), 0),
    ]


def test_writers_are_closed_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    monkeypatch.setattr(tracking, "check", lambda name: None)
    monkeypatch.setitem(tracking.WRITERS, "mlflow", lambda where, settings: memory)

    def failing() -> None:
        with tracking.start(["mlflow=somewhere"], {}):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert memory.closed


def test_unknown_and_missing_trackers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="mlflow or tensorboard"), tracking.start(["wandb"], {}):
        pass
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(UserError, match=r"pip install 'protoevfl\[mlflow\]'"),
        tracking.start(["mlflow"], {}),
    ):
        pass


def test_mlflow_gets_parameters_and_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    fake: Any = types.ModuleType("mlflow")
    for name in (
        "set_tracking_uri",
        "set_experiment",
        "start_run",
        "log_params",
        "log_metric",
        "end_run",
    ):
        setattr(
            fake,
            name,
            lambda *args, _name=name, **more: calls.append((_name, *args, *more.values())),
        )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    writer = tracking._MLflowWriter("file:here", {"seed": 1})
    writer.number("warm-up/loss (mean)", 0.5, 3)
    writer.close()
    assert ("set_tracking_uri", "file:here") in calls
    assert ("log_params", {"seed": "1"}) in calls
    assert ("log_metric", "warm-up/loss _mean_", 0.5, 3) in calls
    assert calls[-1] == ("end_run",)


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)
def test_tensorboard_writes_event_files(tmp_path: Path) -> None:
    with tracking.start([f"tensorboard={tmp_path}"], {"seed": 1}) as tracker:
        tracker.report(Report("head", 1, 1, {"loss": 0.5}))
    assert list(tmp_path.glob("events.*"))


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed")
def test_mlflow_writes_a_run(tmp_path: Path) -> None:
    with tracking.start([f"mlflow=sqlite:///{tmp_path}/mlflow.db"], {"seed": 1}) as tracker:
        tracker.report(Report("head", 1, 1, {"loss": 0.5}))
    assert (tmp_path / "mlflow.db").is_file()
