"""Who is missing from an attempt, and when to give up; stdout survives threads that talk to the hub."""

import sys
import threading

import pytest

from protoevfl.deploy import supervise
from protoevfl.engines import nvflare


def test_a_party_that_had_a_process_and_lost_it_is_gone_even_while_the_job_starts() -> None:
    roll = supervise._Roll(["bank", "shop"])
    assert roll.gone({"bank": False, "shop": False}, begun=False) == []  # not started yet
    assert roll.gone({"bank": True, "shop": True}, begun=False) == []
    assert roll.gone({"bank": True, "shop": False}, begun=False) == ["shop"]


def test_a_silent_party_is_not_gone_and_one_outside_the_attempt_does_not_count() -> None:
    roll = supervise._Roll(["bank", "shop"])
    assert roll.gone({"bank": True, "shop": None, "tele": False}, begun=True) == []
    assert roll.gone({"bank": True, "shop": False, "tele": False}, begun=True) == ["shop"]


def test_a_party_that_never_got_a_process_is_gone_when_it_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    roll = supervise._Roll(["bank", "shop"])
    monkeypatch.setattr(supervise, "LATE_S", -1.0)
    assert roll.gone({"bank": True, "shop": False}, begun=False) == ["shop"]


def test_patience_starts_again_with_every_new_round(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(supervise.time, "monotonic", lambda: now)
    patience = supervise._Patience(10.0)
    now = 9.0
    patience.progress(1)
    now = 18.0
    assert not patience.over()
    patience.progress(1)
    now = 20.0
    assert patience.over()


def test_threads_that_are_quiet_do_not_take_stdout_away() -> None:
    before = sys.stdout

    def work() -> None:
        for _ in range(200):
            with nvflare._quiet():
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.stdout is before
