import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from protoevfl import records as files
from protoevfl.errors import UserError
from protoevfl.experiments.catalogue import EXPERIMENTS
from protoevfl.experiments.measure import Store
from protoevfl.report import figures, words
from protoevfl.report.page import build, grouped, load
from protoevfl.report.pictures import save, svg
from protoevfl.run import RunConfig
from tests.experiments import fake


def test_page_is_self_contained(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert not re.search(r"<(link|img|iframe|script src|object|embed)\b", html)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', html.replace("xlink:href", "href"))
    assert "url(http" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html


def test_page_escapes_what_comes_from_records() -> None:
    record = {**fake.record(RunConfig(), 0), "method": "<script>alert(1)</script>", "commit": "</pre><b>"}
    html = build([record], "<i>")
    assert "<script>alert" not in html
    assert "</pre><b>" not in html
    assert "<title>&lt;i&gt;</title>" in html


def test_ids_are_unique_and_links_meet_them(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    outside = re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)
    ids = re.findall(r'\bid="([^"]+)"', outside)
    assert len(ids) == len(set(ids))
    everything = set(re.findall(r'\bid="([^"]+)"', html))
    links = set(re.findall(r'href="#([^"]+)"', html)) | set(re.findall(r"url\(#([^)]+)\)", html))
    assert links <= everything


def test_page_says_what_the_issue_asks_for(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    for needed in (
        "All results",
        "The split and its imbalance",
        "Bytes by message type",
        "Every setting",
        "@media print",
    ):
        assert needed in html
    assert "runs of" in html  # the summary in words


def test_records_of_no_experiment_have_a_page_too() -> None:
    records = [
        fake.record(RunConfig(dataset="mine", method=m), s) for m in ("vanilla", "proto_evfl") for s in (0, 1, 2)
    ]
    html = build(records)
    assert "mine, 200 aligned rows: proto_evfl reaches" in html
    assert html.count("<figure>") >= 4


def test_sparse_records_do_not_break_the_page() -> None:
    assert "<table" in build([{"dataset": "mine", "method": "vanilla", "seed": 0, "metrics": {"accuracy": 0.5}}])


def test_summary_names_the_best_method_and_its_number() -> None:
    records = [fake.record(RunConfig(dataset="mine", method=m), s) for m in ("vanilla", "local") for s in (0, 1)]
    expected = sum(r["metrics"]["accuracy"] for r in records[:2]) / 2
    line = words.leaders(grouped(records))[0]
    assert f"vanilla reaches {100 * expected:.1f} ±" in line
    assert "next is local" in line
    assert any("fewer than three seeds" in w for w in words.warnings(grouped(records)))


def test_the_summary_compares_like_with_like() -> None:
    """Neither more parties nor changed settings win a sentence that does not say so."""
    usual = [fake.record(RunConfig(dataset="mine", method=m), 0) for m in ("vanilla", "local")]
    more = fake.record(RunConfig(dataset="mine", method="proto_evfl", parties=6), 0)
    more["metrics"]["accuracy"] = 0.999
    assert "proto_evfl" not in words.leaders(grouped([*usual, more]))[0]
    zero = {"dataset": "mine", "method": "proto_evfl", "setting": "zero_shot", "classes": (3,)}
    on, off = (fake.record(RunConfig(**zero, overrides=o), 0) for o in ({}, {"unseen.slot": False}))
    on["metrics"]["unseen_recall"], off["metrics"]["unseen_recall"] = 0.8, 0.0
    assert words.unseen(grouped([on, off])) == [
        "Recall of classes without a single label, mean over cells: proto_evfl 80.0 % (1 cell)."
    ]


def test_load_reads_files_and_folders_and_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    with pytest.raises(UserError, match="there is no"):
        load(file)
    with pytest.raises(UserError, match="holds no records"):
        load(tmp_path)
    files.append(file, fake.record(RunConfig(), 0))
    assert len(load(file)) == len(load(tmp_path)) == 1


def test_figures_are_well_formed_and_repeatable(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["gradient_norm"]
    store = Store(fake.records(experiment.cells))
    first, second = figures.draw(experiment, store), figures.draw(experiment, store)
    assert [p.slug for p in first] == ["gradient-norm-gradients"]
    assert first[0].raw == second[0].raw
    ElementTree.fromstring(first[0].raw)
    inside = svg(first[0])
    assert "T^-0.4" in inside  # the fitted slope is named
    assert [p.suffix for p in save(first[0], tmp_path)] == [".svg", ".png"]


def test_figures_draw_what_is_there_and_leave_out_the_rest() -> None:
    experiment = EXPERIMENTS["accuracy_tables"]
    records = fake.records([c for c in experiment.cells if c.config.aligned == 200])
    assert {p.slug for p in figures.draw(experiment, Store(records))} == {
        "accuracy-tables-confusion",
        "accuracy-tables-priors",
    }
    bare = json.loads(json.dumps(records))
    for record in bare:
        del record["metrics"]["confusion"], record["metrics"]["priors"]
    assert figures.draw(experiment, Store(bare)) == []
