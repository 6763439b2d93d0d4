"""Tables: mean and spread, only the columns that say something."""

from typing import Any

import pytest

from protoevfl.cli import tables as cli_tables
from protoevfl.cli.tables import COLUMNS, _cell, columns_for, show, summary
from protoevfl.progress import size


def record(accuracy: float, seed: int = 0, **metrics: Any) -> dict[str, Any]:
    return {
        "seed": seed, "metrics": {"accuracy": accuracy, "balanced_accuracy": accuracy, **metrics},
        "bytes": {"up": 1000, "down": 500}, "rounds": 3, "seconds": 1.5,
    }  # fmt: skip


def test_cells() -> None:
    accuracy, auc = COLUMNS[0], COLUMNS[2]
    assert _cell(accuracy, [record(0.5), record(0.7)]) == "60.0 ± 14.1"
    assert _cell(accuracy, [record(0.5)]) == "50.0"
    assert _cell(auc, [record(0.5)]) == "-"
    assert _cell(auc, [record(0.5, auc=None), record(0.5, auc=0.8)]) == "80.0"
    assert [size(n) for n in (999, 1500, 2_500_000, 3e9)] == ["999", "1.5 kB", "2.5 MB", "3 GB"]


def test_columns_that_nobody_fills_are_left_out() -> None:
    plain = [c.title for c in columns_for([[record(0.5, seen_accuracy=0.5, unseen_recall=None)]])]
    assert plain == ["accuracy %", "balanced %", "bytes", "rounds", "seconds"]
    unseen = [
        c.title
        for c in columns_for(
            [[record(0.5, seen_accuracy=0.5, unseen_recall=0.0, harmonic_mean=0.0)]]
        )
    ]
    assert unseen == [
        "accuracy %",
        "balanced %",
        "seen %",
        "unseen %",
        "H %",
        "bytes",
        "rounds",
        "seconds",
    ]


def test_a_table_is_never_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    groups = {"a method with a long name": [record(0.5), record(0.7)], "[b]": [record(0.1)]}
    show("title", "method", groups, COLUMNS)
    shown = capsys.readouterr().out
    assert "a method with a long name" in shown
    assert "[b]" in shown
    assert "60.0 ± 14.1" in shown
    assert "…" not in shown


def test_the_summary_for_machines() -> None:
    found = summary([record(0.5, seed=1), record(0.7, seed=2)])
    assert found["seeds"] == [1, 2]
    assert found["accuracy"]["mean"] == pytest.approx(0.6)
    assert found["bytes"] == {"mean": 1500, "std": 0}
    assert "auc" not in found
    assert cli_tables.both_ways(record(1.0)) == 1500
