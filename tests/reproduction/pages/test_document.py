import re
from pathlib import Path

import pytest

from protoevfl.bench import records
from protoevfl.errors import UserError
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.pages.document import BLOCK, fill
from tests.reproduction import fake

RESULTS = Path(__file__).parents[3] / "docs" / "results.md"


def test_blocks_are_filled_and_the_rest_stays(tmp_path: Path) -> None:
    page, file = tmp_path / "page.md", tmp_path / "records.jsonl"
    page.write_text("before\n<!-- begin selection:accuracy -->\nold\n<!-- end -->\nafter <!-- end -->\n")
    for record in fake.records(EXPERIMENTS["selection"].cells):
        records.append(file, record)
    assert fill(page, file) == 1
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after <!-- end -->\n")
    assert "old" not in text
    assert re.search(r"\| pdtc \| \d\d\.\d ± \d\.\d \(2\); paper 81\.6, [+-]\d", text)
    assert "balanced" not in text
    assert fill(page, file) == 1  # a second time gives the same
    assert page.read_text() == text


def test_unknown_block_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("<!-- begin nothing -->\n<!-- end -->\n")
    with pytest.raises(UserError, match="no block 'nothing'"):
        fill(tmp_path / "page.md", tmp_path / "records.jsonl")


def test_results_page_has_every_experiment() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    names = {match["name"].partition(":")[0] for match in BLOCK.finditer(text)}
    assert names == {"claims", "runs", *EXPERIMENTS}
    assert all(f"reproduce {name}" in text or f"`{name}`" in text for name in EXPERIMENTS)
