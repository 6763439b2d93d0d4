"""The ledger of rows: every row that left is counted, over runs and restarts, and the limit holds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protoevfl.deploy.row_ledger import DAY_S, LimitError, Limits, RowLedger, row_keys
from protoevfl.errors import UserError

LIMITS = Limits(
    sends=5, sends_per_run=3, statistics_per_run=1, ids=100, least_ids=10, alignments_per_day=2
)
ROWS = row_keys(b"k", ["C1", "C2", "C3"])


def ledger(folder: Path, **changes: int) -> RowLedger:
    return RowLedger(folder / "bank", "bank", replace(LIMITS, **changes))


def test_a_row_is_known_by_its_id_and_only_to_its_owner() -> None:
    assert len(set(ROWS.tolist())) == 3
    assert row_keys(b"k", ["C2", "C1"]).tolist() == [ROWS[1], ROWS[0]]
    assert not set(row_keys(b"other", ["C1", "C2", "C3"]).tolist()) & set(ROWS.tolist())
    assert (ROWS >= 0).all()
    assert len(row_keys(b"k", [])) == 0


def test_the_stop_holds_over_restarts_and_new_run_names(tmp_path: Path) -> None:
    for run in range(5):  # a new process and a new name each time
        ledger(tmp_path).left(ROWS[:2], "embedding", f"run-{run}", "round 1")
    with pytest.raises(LimitError, match=r"2 rows .* gone to bank 5 times, over all runs"):
        ledger(tmp_path).left(ROWS[:2], "features", "run-5", "round 1")
    ledger(tmp_path).left(ROWS[2:], "embedding", "run-5", "round 1")  # another row
    lines = "\n".join(ledger(tmp_path).summary())
    assert "3 rows left, each at most 5 of 5 times" in lines
    assert "as embedding: 3 rows, 11 times" in lines
    assert "features" not in lines  # what was refused did not leave


def test_a_run_has_a_limit_of_its_own_and_a_repeated_round_counts_once(tmp_path: Path) -> None:
    for number in (1, 1, 2, 2, 3):
        ledger(tmp_path).left(ROWS, "embedding", "r", f"round {number}")
    with pytest.raises(LimitError, match="3 answers of run r"):
        ledger(tmp_path).left(ROWS, "embedding", "r", "round 4")
    ledger(tmp_path).left(ROWS, "embedding", "s", "round 1")


def test_the_pool_is_described_once_in_a_run(tmp_path: Path) -> None:
    ledger(tmp_path).left(ROWS, "statistics", "r", "round 1")
    with pytest.raises(LimitError, match="described 1 times in run r"):
        ledger(tmp_path).left(ROWS, "statistics", "r", "round 2")


def test_alignments_are_counted_by_the_day_and_ids_by_the_list(tmp_path: Path) -> None:
    now = 1e9
    book = ledger(tmp_path)
    book.clock = lambda: now
    for _ in range(2):
        book.aligns("r")
    with pytest.raises(LimitError, match="2 alignments with bank in 24 hours"):
        book.aligns("s")
    now += DAY_S + 1
    book.aligns("s")
    with pytest.raises(LimitError, match="asks about 20,000 ids, at most 100"):
        book.asked(20_000, "s")
    with pytest.raises(LimitError, match="asks about 3 ids, at least 10"):
        book.asked(3, "s")
    book.asked(50, "s")
    assert book.summary()[-1] == "  alignments: 1, 50 ids asked about"


def test_a_damaged_ledger_stops_everything_and_no_older_one_is_used(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.left(ROWS, "embedding", "r", "1")
    (path,) = (tmp_path / "bank").glob("*.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"damaged.*restore it from a copy"):
        ledger(tmp_path).left(ROWS, "embedding", "r", "2")


def test_many_rows_take_little_time(tmp_path: Path) -> None:
    rows = np.arange(100_000, dtype=np.int64)
    book = ledger(tmp_path)
    for number in range(3):
        book.left(rows, "embedding", "r", str(number))
    assert sum(path.stat().st_size for path in (tmp_path / "bank").iterdir()) < 10_000_000
