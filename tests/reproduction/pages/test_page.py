import re
from pathlib import Path

import pytest

from protoevfl.bench import records as files
from protoevfl.bench.world import RunConfig
from protoevfl.cli.main import main
from protoevfl.deploy.audit_log import AuditLog
from protoevfl.errors import UserError
from protoevfl.reproduction.pages.page import build, load
from tests.reproduction import fake


def test_page_is_self_contained(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert not re.search(r"<(link|img|iframe|script src|object|embed)\b", html)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', html.replace("xlink:href", "href"))
    assert "url(http" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html


def test_page_escapes_what_comes_from_records() -> None:
    record = {
        **fake.record(RunConfig(), 0),
        "method": "<script>alert(1)</script>",
        "commit": "</pre><b>",
    }
    html = build([record], "<i>")
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
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
    for needed in ("Bytes by message type", "Every setting", "@media print"):
        assert needed in html
    assert "runs of" in html  # the summary in words


def test_it_opens_with_what_was_found_and_ends_with_where_it_comes_from(page: Path) -> None:
    """Figures, claims, one table per experiment; the long tables are folded; provenance is last."""
    html = page.read_text(encoding="utf-8")
    order = [
        "<figure>",
        'id="claims"',
        'id="accuracy_tables"',
        "<details><summary>All results",
        'id="provenance"',
    ]
    places = [html.index(mark) for mark in order]
    assert places == sorted(places)
    assert html.index("<table") > html.index("<figure>")
    folded = re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)
    assert 'id="results"' not in folded
    assert 'id="accuracy_tables-AUC"' not in folded
    assert 'id="accuracy_tables-accuracy"' in folded


def test_records_of_no_experiment_have_a_page_too() -> None:
    records = [
        fake.record(RunConfig(dataset="mine", method=m), s)
        for m in ("vanilla", "proto_evfl")
        for s in (0, 1, 2)
    ]
    html = build(records)
    assert "mine, 200 aligned rows: proto_evfl reaches" in html
    assert html.count("<figure>") >= 4


def test_sparse_records_do_not_break_the_page() -> None:
    assert "<table" in build(
        [{"dataset": "mine", "method": "vanilla", "seed": 0, "metrics": {"accuracy": 0.5}}]
    )


def test_load_reads_files_and_folders_and_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    with pytest.raises(UserError, match="there is no"):
        load(file)
    with pytest.raises(
        UserError, match="holds no records and is no run directory; name a run directory"
    ):
        load(tmp_path)
    files.append(file, fake.record(RunConfig(), 0))
    assert len(load(file)) == len(load(tmp_path)) == 1


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The audit log of a deployment and the log of a search are JSON lines, too."""
    log = AuditLog(tmp_path / "audit.jsonl")
    log.add("request", run="job", peer="bank", type="Embed", bytes=10, round=1)
    files.append(tmp_path / "tune.jsonl", {"method": "vanilla", "seeds": [0], "trials": []})
    for source in (tmp_path, tmp_path / "audit.jsonl", tmp_path / "tune.jsonl"):
        assert main(["report", str(source)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert "holds no records and is no run directory" in line
        assert "name a run directory (of `protoevfl train`) or a records file" in line
    assert not (tmp_path / "report.html").exists()
    # known by what it holds, not by its name
    files.append(tmp_path / "z.jsonl", fake.record(RunConfig(), 0))
    assert len(load(tmp_path)) == 1
