"""docs/deployment.md says what the campaign's file says, and the file names no machine."""

from pathlib import Path

import pytest

from tests.faults import figures, kills

ROOT = Path(__file__).parents[2]
LINES = figures.read(ROOT / figures.RESULTS) if (ROOT / figures.RESULTS).exists() else []


@pytest.mark.skipif(not LINES, reason="no campaign has been run")
def test_the_page_has_the_files_figures() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    assert figures.filled(page, LINES) == page


def test_the_file_names_no_path() -> None:
    text = (ROOT / figures.RESULTS).read_text() if LINES else ""
    assert "/tmp" not in text
    assert "/home" not in text
    assert "/work" not in text


def test_moments_are_the_same_for_the_same_seed_and_spread_over_the_run() -> None:
    first, second = (list(kills.moments("party worker", 20, 3, ("bank", "shop"))) for _ in range(2))
    assert first == second
    assert len({m.key for m in first}) == 20
    assert {m.phase for m in first} == {"start", "training", "prediction", "end"}
    assert {m.victim for m in first} == {"bank", "shop"}


def test_a_case_that_was_repeated_counts_once() -> None:
    line = {
        "kind": "kill -9",
        "key": "a",
        "what": "hub hub, start",
        "good": False,
        "seconds": 9.0,
        "recovery_s": 4.0,
    }
    assert "| 1 | 0 | 4, 4 | 9 |" in figures.table([line])
    assert "| 1 | 1 (1 of them after a change) | 2, 2 | 9 |" in figures.table(
        [line, {**line, "good": True, "recovery_s": 2.0}]
    )
