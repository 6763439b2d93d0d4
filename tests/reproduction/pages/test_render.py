"""The files of a reproduction: one page of Markdown, each experiment's CSV and pictures, one HTML
page."""

import sys
from pathlib import Path

import pytest

from protoevfl.bench import records as files
from protoevfl.cli.main import main
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.pages.render import render
from tests.reproduction import fake


def test_every_file_that_is_named_is_there_and_steps_reach_the_end(tmp_path: Path) -> None:
    chosen, records = (
        [EXPERIMENTS["imbalance"], EXPERIMENTS["selection"]],
        tmp_path / "records.jsonl",
    )
    for record in fake.records([cell for e in chosen for cell in e.cells]):
        files.append(records, record)
    steps: list[tuple[int, int]] = []
    written = render(
        chosen,
        records,
        tmp_path / "out",
        png=False,
        step=lambda done, total: steps.append((done, total)),
    )
    assert all(path.is_file() for path in written)
    assert len(written) == len(set(written))
    names = {path.name for path in written}
    assert {"imbalance.csv", "selection.csv", "results.md", "report.html"} <= names
    assert not any(name.endswith(".png") for name in names)
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]  # claims, two experiments, provenance
    summary = (tmp_path / "out" / "results.md").read_text()
    assert "## The paper's claims" in summary
    assert all(f"## {experiment.title}" in summary for experiment in chosen)
    links = [line.split("](")[1].rstrip(")") for line in summary.splitlines() if "](" in line]
    assert len(links) == 4
    assert all((tmp_path / "out" / link).is_file() for link in links)


def test_without_records_there_are_the_paper_s_numbers_and_no_page(tmp_path: Path) -> None:
    written = render([EXPERIMENTS["ablation"]], tmp_path / "none.jsonl", tmp_path / "out")
    assert {path.name for path in written} == {"ablation.csv", "results.md"}
    assert "| (81.6) |" in (tmp_path / "out" / "results.md").read_text()


def test_where_jinja2_is_missing_all_but_the_page_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment, records = EXPERIMENTS["selection"], tmp_path / "records.jsonl"
    files.append(records, *fake.records(experiment.cells))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    names = {path.name for path in render([experiment], records, tmp_path / "out", png=False)}
    assert "results.md" in names
    assert "report.html" not in names
    assert main(["report", str(records)]) == 2
    assert "pip install 'Jinja2>=3.1'" in capsys.readouterr().err
