"""Every row that left is on disk before it leaves, counted once, whatever crashes."""

from pathlib import Path

import numpy as np
import pytest

from protoevfl.deploy import serving_log
from protoevfl.deploy.row_ledger import LimitError, Limits, RowLedger
from protoevfl.deploy.serving_log import DayLimits, Record, ServingLog, records

LIMITS = Limits(5, 40, 1, 10, 1, 10)
WIDE = DayLimits(1000, 1000)
KEYS = np.array([3, 1, 2], dtype=np.int64)


def opened(folder: Path, now: float = 0.0) -> ServingLog:
    ledger = RowLedger(folder, "bank", LIMITS, lambda: now)
    return ServingLog(ledger, lambda: now)


def test_a_record_is_read_back_and_a_torn_one_ends_the_log() -> None:
    data = Record(1.5, "run", "features", KEYS).packed() * 2
    found = [record for record, _ in records(data[:-1])]
    assert len(found) == 1
    assert (found[0].time, found[0].run, found[0].form) == (1.5, "run", "features")
    assert found[0].keys.tolist() == KEYS.tolist()
    changed = bytearray(data)
    changed[-6] ^= 1
    assert len(list(records(bytes(changed)))) == 1


def test_after_a_crash_every_row_is_in_the_ledger_once(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.enter(KEYS, "embedding", "run", WIDE)
    log.enter(KEYS[:1], "embedding", "run", WIDE)
    before = (tmp_path / "serving.log").read_bytes()
    again = opened(tmp_path)
    assert again.ledger.totals() == {1: 1, 2: 1, 3: 2}
    assert again.used() == (2, 4)
    # the crash came between the ledger and the new log
    (tmp_path / "serving.log").write_bytes(before)
    assert opened(tmp_path).ledger.totals() == {1: 1, 2: 1, 3: 2}


def test_many_records_go_over_into_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_log, "MOST_RECORDS", 2)
    log = opened(tmp_path)
    for _ in range(3):
        log.enter(KEYS, "embedding", "run", WIDE)
    assert log.ledger.totals() == {1: 2, 2: 2, 3: 2}
    assert log.used() == (3, 9)
    assert len(list(records((tmp_path / "serving.log").read_bytes()))) == 1
    # and does not count as answers of a training run
    log.ledger.left(KEYS, "embedding", "run", "round 1")


def test_limits_of_a_day_and_of_a_row_hold_over_restarts(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.enter(KEYS, "embedding", "run", WIDE)
    for again in (log, opened(tmp_path)):
        with pytest.raises(LimitError, match="requests_per_day"):
            again.enter(KEYS, "embedding", "run", DayLimits(1, 1000))
        with pytest.raises(LimitError, match="rows_per_day"):
            again.enter(KEYS, "embedding", "run", DayLimits(10, 5))
    for _ in range(4):
        log.enter(KEYS[:1], "embedding", "other", WIDE)
    with pytest.raises(LimitError, match="max_sends"):
        log.enter(KEYS, "embedding", "run", WIDE)
    assert log.used() == (5, 7)


def test_a_day_ends(tmp_path: Path) -> None:
    opened(tmp_path).enter(KEYS, "embedding", "run", WIDE)
    assert opened(tmp_path, now=3600.0).used() == (1, 3)
    later = opened(tmp_path, now=25 * 3600.0)
    assert later.used() == (0, 0)
    later.enter(KEYS, "embedding", "run", DayLimits(1, 3))


def test_a_day_takes_one_entry_a_minute(tmp_path: Path) -> None:
    """However many requests there are; none is forgotten before its 24 hours are over."""
    now = 0.0
    log = ServingLog(RowLedger(tmp_path, "bank", LIMITS, lambda: now), lambda: now)
    for second in range(150):
        now = float(second)
        log.enter(KEYS[:0], "embedding", "run", WIDE)
    assert log.used() == (150, 0)
    assert len(log.today) == 3
    for later, requests in ((60.0, 150 - 60), (120.0, 150 - 120), (180.0, 0)):
        now = 24 * 3600.0 + later - 1
        assert log.used()[0] > requests
        now += 1
        assert log.used() == (requests, 0)
