"""Keys of callers: salted hashes in a file of the owner's, limits per caller."""

import json
from pathlib import Path

import pytest

from protoevfl.errors import UserError
from protoevfl.serve import api_keys
from protoevfl.serve.api_keys import Callers, KeyRefusedError, TooManyError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / api_keys.FILE


def test_a_key_is_known_and_the_file_does_not_hold_it(path: Path) -> None:
    key = api_keys.add(path, "shop-floor", 10, 100)
    assert path.stat().st_mode & 0o777 == 0o600
    assert key.split(".")[1] not in path.read_text()
    assert Callers(path).known(key).name == "shop-floor"
    again = api_keys.add(path, "other", 10, 100)
    salts = {entry["salt"] for entry in json.loads(path.read_text())}
    assert len(salts) == 2
    assert Callers(path).known(again).name == "other"


@pytest.mark.parametrize("wrong", ["", ".", "a", "a.", "a.b.c", "b.{}", "a.{}x"])
def test_anything_else_is_refused_with_the_same_words(path: Path, wrong: str) -> None:
    secret = api_keys.add(path, "a", 10, 100).split(".")[1]
    with pytest.raises(KeyRefusedError, match="missing or not known"):
        Callers(path).known(wrong.format(secret))


def test_a_key_that_is_taken_away_or_replaced_is_dead_at_once(path: Path) -> None:
    first = api_keys.add(path, "a", 10, 100)
    callers = Callers(path)
    second = api_keys.add(path, "a", 10, 100)
    with pytest.raises(KeyRefusedError):
        callers.known(first)
    assert callers.known(second).name == "a"
    api_keys.remove(path, "a")
    with pytest.raises(KeyRefusedError):
        callers.known(second)
    with pytest.raises(UserError, match="no caller is named"):
        api_keys.remove(path, "a")


def test_a_file_that_others_can_read_is_refused(path: Path) -> None:
    api_keys.add(path, "a", 10, 100)
    path.chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        Callers(path)
    path.chmod(0o600)
    path.write_text("{")
    with pytest.raises(UserError, match="damaged"):
        api_keys.read(path)
    with pytest.raises(UserError, match="small letters"):
        api_keys.add(path, "A b", 1, 1)


def test_limits_begin_anew_with_the_minute_and_the_day(path: Path) -> None:
    now = [0.0]
    callers = Callers(path, lambda: now[0])
    entry = api_keys.Entry("a", "", "", per_minute=2, rows_per_day=5)
    callers.count_request(entry)
    callers.count_request(entry)
    with pytest.raises(TooManyError, match="requests a minute"):
        callers.count_request(entry)
    now[0] = 60.0
    callers.count_request(entry)
    callers.count_rows(entry, 5)
    with pytest.raises(TooManyError, match="5 of 5 rows a day"):
        callers.count_rows(entry, 1)
    now[0] = api_keys.DAY_S
    callers.count_rows(entry, 5)


def test_rows_of_a_day_hold_over_a_restart(path: Path) -> None:
    """Never fewer than were asked for, at most a hundredth of the day more."""
    now = [10.0]
    entry = api_keys.Entry("a", "", "", rows_per_day=1000)
    for asked in (1, 9, 10, 11, 500):
        path.with_name(api_keys.USED).unlink(missing_ok=True)
        callers = Callers(path, lambda: now[0])
        for _ in range(asked):
            callers.count_rows(entry, 1)
        again = Callers(path, lambda: now[0])
        with pytest.raises(TooManyError):
            again.count_rows(entry, 1000 - asked + 1)
        again.count_rows(entry, 1000 - asked - 10)
    now[0] = api_keys.DAY_S
    Callers(path, lambda: now[0]).count_rows(entry, 1000)


def test_few_writes_book_many_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(api_keys.durable, "write", lambda *found: written.append(found))
    callers = Callers(path)
    entry = api_keys.Entry("a", "", "", rows_per_day=10_000)
    for _ in range(1_000):
        callers.count_rows(entry, 1)
    assert 5 <= len(written) <= 12


def test_a_damaged_account_is_said(path: Path) -> None:
    path.with_name(api_keys.USED).write_text("[1]")
    with pytest.raises(UserError, match="is damaged; remove it"):
        Callers(path)
