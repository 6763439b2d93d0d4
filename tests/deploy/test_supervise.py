"""Who is missing from an attempt, and when to give up; stdout survives threads that talk to the
hub."""

import os
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protoevfl.deploy import supervise
from protoevfl.deploy.kit import Identity, Kit
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.federation.engines import nvflare
from protoevfl.federation.lockstep import PartyLostError


def test_a_party_that_had_a_process_and_lost_it_is_gone_even_while_the_job_starts() -> None:
    roll = supervise._Roll(["bank", "shop"])
    assert roll.gone({"bank": False, "shop": False}, begun=False) == []  # not started yet
    assert roll.gone({"bank": True, "shop": True}, begun=False) == []
    assert roll.gone({"bank": True, "shop": False}, begun=False) == ["shop"]


def test_a_silent_party_is_not_gone_and_one_outside_the_attempt_does_not_count() -> None:
    roll = supervise._Roll(["bank", "shop"])
    assert roll.gone({"bank": True, "shop": None, "tele": False}, begun=True) == []
    assert roll.gone({"bank": True, "shop": False, "tele": False}, begun=True) == ["shop"]


def test_a_party_that_never_got_a_process_is_gone_when_it_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roll = supervise._Roll(["bank", "shop"])
    monkeypatch.setattr(supervise, "LATE_S", -1.0)
    assert roll.gone({"bank": True, "shop": False}, begun=False) == ["shop"]


class Hub:
    """A hub that knows of some parties."""

    def __init__(self, **working: bool | None) -> None:
        self.found, self.aborted = working, list[str]()

    def working(self, job: str) -> dict[str, bool | None]:
        return self.found

    def seen(self) -> dict[str, float]:
        return {}

    def state(self, job: str) -> str:
        return "SUBMITTED"

    def abort(self, job: str) -> None:
        self.aborted.append(job)


def supervisor(tmp_path: Path, policy: str) -> supervise._Supervisor:
    spec = JobSpec("r", ("bank", "shop"), on_party_loss=policy)
    kit = Kit(tmp_path, Identity("p", "bank", "party", "b", "hub:1", "bank", spec.parties))
    return supervise._Supervisor(kit, spec, print)


@pytest.mark.parametrize("policy", ["wait", "skip"])
def test_a_job_that_cannot_begin_without_a_dead_party_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setattr(supervise, "LATE_S", -1.0)
    made, hub = supervisor(tmp_path, policy), Hub(bank=False, shop=None)
    said = made._watch(hub, "job")[1]  # type: ignore[arg-type]
    assert hub.aborted == ["job"]
    assert "shop" in said
    assert made._present() == (["bank", "shop"] if policy == "wait" else ["bank"])


def test_the_active_party_is_never_left_out(tmp_path: Path) -> None:
    made = supervisor(tmp_path, "skip")
    assert made._without(["bank"]) == "party bank is not connected to the hub"
    assert made._present() == ["bank", "shop"]
    assert made._without([]) == ""


def test_the_error_of_an_earlier_attempt_is_not_this_ones(tmp_path: Path) -> None:
    made = supervisor(tmp_path, "wait")
    path = tmp_path / "runs" / "r" / "status.json"
    path.parent.mkdir(parents=True)
    made.job = "new"
    path.write_text('{"job": "old", "state": "failed", "error": "disk", "round": 3}')
    assert made._status() == {"round": 3}
    path.write_text('{"job": "old", "state": "done", "round": 3}')
    assert made._status()["state"] == "done"


def test_an_aborted_run_is_not_tried_again_by_whoever_watches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = supervisor(tmp_path, "wait")

    def attempt(self: supervise._Supervisor) -> tuple[str, str]:
        (tmp_path / "runs" / "r").mkdir(parents=True)  # abort, typed elsewhere
        (tmp_path / "runs" / "r" / "aborted").touch()
        return "FINISHED:ABORTED", ""

    monkeypatch.setattr(supervise._Supervisor, "_attempt", attempt)
    with pytest.raises(UserError, match="was aborted; `protoevfl deploy resume r`"):
        made.run()
    with pytest.raises(UserError, match="no run 'r' was submitted"):
        supervise.abort(made.kit, "r")


@pytest.mark.parametrize("state", ["RUNNING", "FINISHED:COMPLETED"])
def test_no_attempt_goes_on_unwatched_when_a_run_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The hub was out of reach while an attempt ran, and nobody answers for it any more."""
    made, hub = supervisor(tmp_path, "abort"), Hub()
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "job").write_text("job")
    monkeypatch.setattr(Hub, "jobs", lambda self: {"job": state}, raising=False)
    monkeypatch.setattr(supervise.nvflare, "session", lambda *_: nullcontext(hub))
    monkeypatch.setattr(made, "_attempt", lambda: ("UNREACHABLE", "the hub does not answer"))
    with pytest.raises(PartyLostError, match="the hub does not answer"):
        made.run()
    assert hub.aborted == (["job"] if state == "RUNNING" else [])


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


def test_a_run_has_one_watcher_and_another_is_told_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same job submitted twice at once: each used to abort the other's attempts."""
    made = supervisor(tmp_path, "wait")
    kit = Kit(tmp_path, replace(made.kit.identity, admin="lead"))
    begun, go_on = threading.Event(), threading.Event()

    def run(self: supervise._Supervisor) -> dict[str, Any]:
        begun.set()
        assert go_on.wait(10)
        return {"state": "done"}

    monkeypatch.setattr(supervise._Supervisor, "run", run)
    monkeypatch.setattr(supervise, "_reach", lambda kit: None)
    ends: list[dict[str, Any]] = []
    first = threading.Thread(target=lambda: ends.append(supervise.submit(kit, made.spec, print)))
    first.start()
    assert begun.wait(10)
    for again in (
        lambda: supervise.submit(kit, made.spec, print),
        lambda: supervise.resume(kit, "r", print),
    ):
        with pytest.raises(UserError, match=f"run r is watched by process {os.getpid()} already"):
            again()
    go_on.set()
    first.join()
    assert ends == [{"state": "done"}]
    assert supervise.resume(kit, "r", print) == {"state": "done"}
