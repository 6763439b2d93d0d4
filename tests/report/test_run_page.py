"""`protoevfl report` on a run directory: one page, its sections in order, its numbers those of the
run, whatever parties, classes and columns are called."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from protoevfl.artifacts.run_dir import open_run
from protoevfl.cli.main import main
from protoevfl.report import run_page
from protoevfl.report.measured import Measured

NASTY = "<img src=x onerror=alert(1)>&`\"'"
ORDER = [
    "verdict",
    "ranking",
    "calibration",
    "gains",
    "confusion",
    "parties",
    "columns",
    "crossed",
    "origin",
]


def text_of(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


def test_sections_stand_in_the_order_of_the_questions(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert re.findall(r'<section id="([^"]+)"', html) == ORDER
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_it_needs_nobody_and_is_small(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert len(html.encode()) < 2_000_000
    assert "<script" not in html
    assert not re.search(r'(src|href)="(?!#|data:)', html)
    assert "default-src 'none'" in html
    assert "seed" not in text_of(html)
    assert "benchmark" not in text_of(html)


def test_its_numbers_are_those_of_the_run(page: Path, trained: Path) -> None:
    shown = text_of(page.read_text(encoding="utf-8"))
    figures = open_run(trained).need_owner().metrics
    for model in ("test", "alone"):
        for name in ("auc", "accuracy", "balanced_accuracy"):
            assert f"{100 * figures[model][name]:.1f}" in shown
        for name in ("brier", "calibration_error"):
            assert f"{figures[model][name]:.3f}" in shown
    gain = figures["gain"]
    assert f"gain {100 * gain['difference']:.1f} points".replace("-", "−") in shown


def test_figures_and_tables_say_what_they_are(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    drawings = re.findall(r'<svg[^>]*role="img".*?</svg>', html, re.DOTALL)
    assert len(drawings) == 5
    assert all("<title" in drawing and "<desc" in drawing for drawing in drawings)
    for table in re.findall(r"<table.*?</table>", html, re.DOTALL):
        assert 'aria-label="' in table
        assert '<th scope="col"' in table
        assert '<th scope="row">' in table


def test_names_are_text_and_never_markup(trained: Path) -> None:
    run = open_run(trained)
    owner = run.need_owner()
    party = run.parties["bank"]
    for code in party.encoder.codes:  # type: ignore[union-attr]
        object.__setattr__(code, "name", NASTY)
    named = replace(
        run,
        parties={NASTY: party},
        owner=replace(owner, parties=(NASTY, "b", "c"), classes=("no", NASTY)),
        manifest={**run.manifest, "parties": [NASTY, "b", "c"]},
    )
    measured = Measured(named, owner.test, owner.metrics)
    html = run_page._rendered(measured, run_page.sections(measured), "")
    assert "<img" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html


def test_a_run_without_test_rows_says_how_to_get_some(
    trained: Path, untested: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = run_page.build(untested)
    assert re.findall(r'<section id="([^"]+)"', html) == ["verdict", "crossed", "origin"]
    assert "kept no rows to measure on" in html
    assert "test = 0.2" in html
    new = trained.parent / "new"
    files = ["bank.parquet", "insurer.csv", "telco.csv.gz"]
    inputs = [f"--input={file.split('.')[0]}={new / file}" for file in files]
    labels = f"--labels={new / 'truth.csv'}"
    assert main(["report", str(untested), *inputs, labels, "--device", "cpu"]) == 0
    target = Path(capsys.readouterr().out.strip())
    html = target.read_text(encoding="utf-8")
    assert re.findall(r'<section id="([^"]+)"', html) == ORDER
    assert "(new rows)" in html


def test_the_command_names_what_it_cannot_do(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    shutil.rmtree(folder / "owner")
    assert main(["report", str(folder)]) == 2
    assert "only the company with the labels" in capsys.readouterr().err
    assert not (folder / "report.html").exists()
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "name a run directory" in capsys.readouterr().err
    assert main(["report", str(trained), "--out", str(tmp_path)]) == 2
    assert "cannot write" in capsys.readouterr().err
