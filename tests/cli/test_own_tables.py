"""Tables on own files: every number has its place, what was not counted is a dash, and nothing is
cut."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.cli.own_tables import (
    _show_types,
    run_facts,
    show_cost,
    show_metrics,
    show_report,
    show_run,
    show_worth,
)
from protoevfl.pipeline.check import PartyReport, Report
from protoevfl.pipeline.value import Share, Worth
from protoevfl.progress import duration

CONFIG = Path("protoevfl.toml")
Capture = pytest.CaptureFixture[str]


def party(name: str = "bank", **facts: Any) -> PartyReport:
    return PartyReport(
        **{"name": name, "file": f"{name}.csv", "format": "csv", "bytes": 10, **facts}
    )


def line(text: str, start: str) -> list[str]:
    """The cells of the one line that begins with `start`."""
    (found,) = [one for one in text.splitlines() if one.strip().startswith(start)]
    return [cell.strip() for cell in found.strip().split("  ") if cell.strip()]


def test_a_report_shows_what_was_counted(capsys: Capture) -> None:
    bank = party(
        rows=12_345,
        columns={"age": "int64", "größe": "double"},
        features=(1, 8, 8),
        missing={"age": 1200},
        missing_ids=3,
        duplicate_ids=4,
    )
    counted: dict[str, Any] = {
        "classes": {"yes": 3000, "no": 9000},
        "unlabelled": 345,
        "common_classes": {"yes": 30, "no": 90},
        "kinds": {"all": {"labelled": 120, "unlabelled": 5}},
    }
    show_report(
        Report([bank, party("telco")], common=1125, pairs={"telco": 1500}, **counted), CONFIG
    )
    shown = capsys.readouterr().out
    assert line(shown, "bank ") == [
        "bank",
        "bank.csv",
        "12,345",
        "2",
        "1 x 8 x 8",
        "1,200 in 1 columns",
        "3",
        "4",
    ]
    assert line(shown, "telco ") == [
        "telco",
        "telco.csv",
        "0",
        "0",
        "-",
        "0 in 0 columns",
        "0",
        "0",
    ]
    assert line(shown, "yes") == ["yes", "3,000", "30"]
    assert line(shown, "(no label)") == ["(no label)", "345", "1,005"]
    assert "rows shared with telco: 1,500" in shown
    assert line(shown, "shared with all") == ["shared with all", "120", "5"]
    assert "ready: protoevfl align protoevfl.toml, then protoevfl train protoevfl.toml" in shown


@pytest.mark.parametrize(
    "common", [None, 500], ids=["a file is missing", "the rows could not be cut"]
)
def test_what_was_not_counted_is_a_dash(capsys: Capture, common: int | None) -> None:
    report = Report(
        [party()],
        classes={"yes": 40, "no": 60},
        unlabelled=7,
        common=common,
        errors=["telco is absent"],
    )
    show_report(report, CONFIG)
    shown = capsys.readouterr().out
    assert line(shown, "yes") == ["yes", "40", "-"]
    assert line(shown, "(no label)") == ["(no label)", "7", "-"]


def test_a_class_without_common_rows_counts_none(capsys: Capture) -> None:
    show_report(Report(classes={"yes": 40, "no": 60}, common=50, common_classes={"no": 50}), CONFIG)
    shown = capsys.readouterr().out
    assert line(shown, "yes") == ["yes", "40", "0"]
    assert line(shown, "(no label)") == ["(no label)", "0", "0"]


def test_an_error_is_shown_and_nothing_is_called_ready(capsys: Capture) -> None:
    show_report(Report(errors=["bank.csv is empty"], warnings=["few rows [of] any class"]), CONFIG)
    shown = capsys.readouterr().out
    assert "ERROR    bank.csv is empty" in shown
    assert "warning  few rows [of] any class" in shown
    assert "ready" not in shown
    assert "Labels" not in shown


def test_an_estimate_is_in_units_a_person_reads(capsys: Capture) -> None:
    facts = {
        "seconds": 95.0,
        "memory": 2_500_000_000,
        "traffic": 181_440,
        "how": "timed on this machine",
    }
    show_report(Report([party()], estimate=facts), CONFIG)
    shown = capsys.readouterr().out
    assert "about 1 min 35 s, 2.5 GB of memory, 181 kB between parties" in shown
    assert "(timed on this machine)" in shown


def test_types_are_grouped_and_long_lists_cut(capsys: Capture) -> None:
    columns = {f"x{i}": "double" for i in range(9)} | {"city": "string"}
    _show_types(Report([party(columns=columns), party("empty")]))
    assert capsys.readouterr().out.splitlines() == [
        "bank: double: x0, x1, x2, x3, x4, x5, x6, x7 ...; string: city",
        "empty: ",
    ]


FOUND: dict[str, Any] = {
    "rows": 1500,
    "test": {"accuracy": 0.875, "balanced_accuracy": 0.5, "auc": None},
    "subsets": {
        "bank": {"accuracy": 0.75, "balanced_accuracy": 0.5, "auc": 0.625},
        "bank+telco": {"rows": 20, "accuracy": 1.0, "balanced_accuracy": 1.0, "auc": 1.0},
    },
    "majority": {"class": "[no]", "accuracy": 0.8},
}


def test_metrics_of_all_rows_of_subsets_and_of_the_commonest_class(capsys: Capture) -> None:
    show_metrics(FOUND, "Test rows")
    shown = capsys.readouterr().out
    assert "Test rows" in shown
    assert line(shown, "all parties") == ["all parties", "1,500", "87.5", "50.0", "-", "-"]
    assert line(shown, "bank ") == ["bank", "1,500", "75.0", "50.0", "62.5", "-"]
    assert line(shown, "bank+telco") == ["bank+telco", "20", "100.0", "100.0", "100.0", "-"]
    assert line(shown, "always") == ["always '[no]'", "1,500", "80.0", "-", "-", "-"]


def test_no_test_rows_is_said(capsys: Capture) -> None:
    show_metrics({"rows": 0}, "Test rows")
    assert capsys.readouterr().out == "no test rows were kept (test = 0)\n"


def test_metrics_without_subsets(capsys: Capture) -> None:
    show_metrics({name: value for name, value in FOUND.items() if name != "subsets"}, "New rows")
    assert len(line(capsys.readouterr().out, "all parties")) == 6


def test_the_cost_of_a_run(capsys: Capture) -> None:
    show_cost({"seconds": 7300, "rounds": 2, "bytes": {"up": 999, "down": 1500}})
    assert capsys.readouterr().out == "2 h 1 min, 2 rounds, 999 up, 1.5 kB down\n"


@pytest.mark.parametrize(("metric", "name"), [("auc", "AUC"), ("accuracy", "accuracy")])
def test_values_are_signed_points(capsys: Capture, metric: str, name: str) -> None:
    shares = (
        Share("bank", 0.031, -0.01, 0.05, 0.7, 0.8),
        Share("telco", -0.004, -0.02, 0.0, 0.5, 0.83),
    )
    show_worth(Worth(metric, 1200, 0.84, 0.5, shares, {}))
    shown = capsys.readouterr().out
    assert f"in points of {name}: 50.0 with nobody, 84.0 with all" in " ".join(shown.split())
    assert line(shown, "bank") == ["bank", "+3.1", "-1.0", "+5.0", "70.0", "80.0"]
    assert line(shown, "telco") == ["telco", "-0.4", "-2.0", "+0.0", "50.0", "83.0"]
    assert "measured on 1,200 rows" in shown


def run(
    owner: bool = True, here: tuple[str, ...] = ("bank",), facts: dict[str, Any] | None = None
) -> Any:
    """An opened run of two parties, of which some folders are here."""
    manifest = {
        "parties": ["bank", "telco"],
        "method": {"name": "proto_evfl"},
        "seed": 7,
        "created": "2026-01-02T03:04:05+00:00",
        "versions": {"protoevfl": "1.2"},
    }
    metrics = {**FOUND, "subsets": {}, "class_rows": {"yes": 1200}}
    kept = SimpleNamespace(classes=("yes", "nein"), metrics=metrics) if owner else None
    parties = {name: SimpleNamespace(facts=facts) for name in here}
    return SimpleNamespace(
        path=Path("run"), manifest=manifest, parties=parties, owner=kept, names=("bank", "telco")
    )  # fmt: skip


FACTS = {
    "rows": 5000,
    "pool": 4000,
    "train": 800,
    "kept_aside": 200,
    "columns": ["a", "b"],
    "features": [3],
}


def test_a_run_shows_each_party_and_where_its_folder_is(capsys: Capture) -> None:
    show_run(run(facts=FACTS))
    shown = capsys.readouterr().out
    assert "run: proto_evfl, seed 7, made 2026-01-02T03:04:05+00:00 with protoevfl 1.2" in shown
    assert line(shown, "bank ")[:8] == ["bank", "here", "5,000", "4,000", "800", "200", "2", "3"]
    assert line(shown, "telco") == ["telco", "elsewhere", "-", "-", "-", "-", "0"]
    assert "classes: yes (1,200), nein (0)" in shown
    assert shown.endswith("every checksum is right\n")


def test_without_the_owners_folder_nothing_of_its_is_claimed(capsys: Capture) -> None:
    show_run(run(owner=False, here=()))
    shown = capsys.readouterr().out
    assert (
        "the owner's folder is elsewhere: this copy can embed a party's rows, not predict" in shown
    )
    assert "classes:" not in shown
    assert "checksum" not in shown


def test_facts_for_machines_say_which_folders_are_here() -> None:
    found = run_facts(run(facts=FACTS))
    assert found["parties"] == {"bank": {"folder": True, **FACTS}, "telco": {"folder": False}}
    assert found["owner"]["classes"] == ["yes", "nein"]
    assert found["seed"] == 7
    assert run_facts(run(owner=False, here=("bank", "telco")))["owner"] == {}
    assert run_facts(run(here=("telco",)))["parties"] == {
        "bank": {"folder": False},
        "telco": {"folder": True},
    }


@given(st.floats(0, 1e6))
def test_a_duration_never_shows_sixty_of_anything_and_is_right(seconds: float) -> None:
    text = duration(seconds)
    words = text.split()
    parts = dict(zip(words[1::2], map(float, words[::2]), strict=True))
    assert parts.get("s", 0) < 60
    assert parts.get("min", 0) < 60
    told = parts.get("h", 0) * 3600 + parts.get("min", 0) * 60 + parts.get("s", 0)
    assert abs(told - seconds) <= (60.1 if "h" in parts else 1.1 if "min" in parts else 0.06)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (59.96, "1 min 0 s"), (3599.99, "1 h 0 min"), (86_400, "24 h 0 min")],
)
def test_durations_at_the_borders(seconds: float, text: str) -> None:
    assert duration(seconds) == text
