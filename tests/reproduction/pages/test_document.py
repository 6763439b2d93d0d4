import re
import sys
from pathlib import Path

import pytest

from protoevfl.bench import records as files
from protoevfl.cli.main import main
from protoevfl.errors import UserError
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.pages.document import BLOCK, Filling, pages_of, render
from tests.reproduction import fake

RESULTS = Path(__file__).parents[3] / "docs" / "results.md"


def test_blocks_are_filled_and_the_rest_stays(tmp_path: Path) -> None:
    page, filling = tmp_path / "page.md", Filling(fake.records(EXPERIMENTS["selection"].cells))
    page.write_text("before\n<!-- begin selection -->\nold\n<!-- end -->\nafter <!-- end -->\n")
    filling.page(page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after <!-- end -->\n")
    assert "old" not in text
    assert re.search(r"\| pdtc \| \d\d\.\d ± \d\.\d \(81\.6\) \|", text)
    assert "balanced" not in text
    assert {p.relative_to(tmp_path).as_posix() for p in filling.written} == {
        "page.md", "tables/selection.csv", "figures/selection-overview.svg",
    }  # fmt: skip
    assert "balanced" in (tmp_path / "tables" / "selection.csv").read_text()
    filling.page(page)  # a second time gives the same
    assert page.read_text() == text


def test_one_quantity_and_one_figure_can_be_asked_for(tmp_path: Path) -> None:
    filling = Filling(fake.records(EXPERIMENTS["communication"].cells))
    assert filling.block("communication:accuracy", tmp_path).startswith("*Accuracy (%)")
    assert filling.block("communication/messages", tmp_path).endswith(
        "(figures/communication-messages.svg)"
    )
    assert [path.name for path in filling.written] == ["communication-messages.svg"]


def test_further_seeds_decide_close_cases_and_change_no_other_table(tmp_path: Path) -> None:
    names = ("margins", "accuracy_tables")
    cells = [
        cell for name in names for cell in EXPERIMENTS[name].cells if cell.config.dataset == "adult"
    ]
    five, seven = (Filling(fake.records(cells, range(seeds))) for seeds in (5, 7))
    assert five.block("accuracy_tables", tmp_path) == seven.block("accuracy_tables", tmp_path)
    assert "over 5 seeds" in five.block("margins", tmp_path)
    assert "over 7 seeds" in seven.block("margins", tmp_path)


def test_unknown_block_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no block 'nothing'"):
        Filling([]).block("nothing", tmp_path)


def test_results_pages_have_every_experiment_and_are_short() -> None:
    texts = [page.read_text(encoding="utf-8") for page in pages_of(RESULTS)]
    names = {re.split("[:/]", match["name"])[0] for text in texts for match in BLOCK.finditer(text)}
    assert names == {"claims", "runs", *EXPERIMENTS}
    assert all(f"reproduce {name}" in "".join(texts) for name in EXPERIMENTS)
    assert max(text.count("\n") for text in texts) <= 250
    assert texts[0].index("begin claims") < texts[0].index("begin runs")  # provenance last
    figures = RESULTS.with_suffix("") / "figures"
    assert sum(path.stat().st_size for path in figures.iterdir()) < 1.5e6


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
