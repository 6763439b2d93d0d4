"""Submit a run and see it through: a run is a row of attempts (NVFlare jobs), each going on where
the last one ended.

A job dies with any of its processes. What the parties and the active side have on disk makes the
next attempt the same run, so the only decisions here are whether to try again, with whom, and when
to give up.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protoevfl.deploy import durable
from protoevfl.deploy.kit import Kit
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.federation.engines import nvflare
from protoevfl.federation.lockstep import PartyLostError

POLL_S = 1.0
LATE_S = 30.0  # by then every party that answers has started its process
START_S = 120.0  # for some attempts to begin, where the policy is not to wait
END_S = 15.0  # for a job to end after its run has
FINAL = ("FINISHED", "ABANDONED", "FAILED")
Say = Callable[[str], None]
Show = Callable[[str, int, int], None]  # (what goes on, done, total or 0)


def _unseen(what: str, done: int, total: int) -> None:
    """The default display."""


def read_status(kit: Kit, run: str) -> dict[str, Any]:
    """status.json of a run at the active party, {} before there is one."""
    with suppress(OSError, ValueError):
        return dict(json.loads((kit.run_folder(run) / "status.json").read_text()))
    return {}


def read_spec(kit: Kit, run: str) -> JobSpec:
    """The specification a run was submitted with."""
    path = kit.run_folder(run) / "submitted.json"
    try:
        return JobSpec.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        raise UserError(f"no run {run!r} was submitted from {kit.folder}") from None


def submit(kit: Kit, spec: JobSpec, say: Say = print, show: Show = _unseen) -> dict[str, Any]:
    """A new run, to its end."""
    _check_can_submit(kit, spec)
    with _alone(kit, spec.run):
        path = kit.run_folder(spec.run) / "submitted.json"
        if path.exists():
            raise UserError(
                f"run {spec.run} exists; `protoevfl deploy resume {spec.run}`, or give the new run "
                "a new name"
            )
        _reach(kit)
        durable.write(path, json.dumps(spec.to_dict(), indent=1).encode())
        return _Supervisor(kit, spec, say, show).run()


def resume(kit: Kit, run: str, say: Say = print, show: Show = _unseen) -> dict[str, Any]:
    """Go on with a run that was interrupted."""
    spec = read_spec(kit, run)
    done = read_status(kit, run)
    if done.get("state") == "done":
        return done
    with _alone(kit, run):
        _reach(kit)
        _aborted(kit, run).unlink(missing_ok=True)
        return _Supervisor(kit, spec, say, show).run()


@contextmanager
def _alone(kit: Kit, run: str) -> Iterator[None]:
    """One watcher per run, until its process ends: two would abort each other's attempts."""
    import fcntl

    folder = kit.run_folder(run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "watched").open("a+")
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UserError(
                f"run {run} is watched by process {file.read() or 'of another terminal'} already; "
                f"end that one first, or look with `protoevfl deploy status {kit.folder} {run}`"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def abort(kit: Kit, run: str) -> None:
    """End the attempt that is running, also for whoever watches it; `resume` goes on with the
    run."""
    read_spec(kit, run)
    job = _last_job(kit, run)
    if not job or read_status(kit, run).get("state") == "done":
        raise UserError(
            f"run {run} {'is done' if job else 'was never begun'}: there is no attempt to abort"
        )
    durable.write(_aborted(kit, run), b"")
    with nvflare.session(kit.identity.admin, kit.folder / "admin") as hub:
        hub.abort(str(job))


def _check_can_submit(kit: Kit, spec: JobSpec) -> None:
    if not kit.identity.admin:
        raise UserError(
            f"jobs are submitted with the kit of the active party, {kit.identity.active}"
        )
    if spec.task == "serve":
        raise UserError(f"a run is served by `protoevfl deploy serve {spec.base}`, not by a job")
    unknown = sorted(set(spec.parties) - set(kit.identity.parties))
    if unknown or spec.active != kit.identity.active:
        raise UserError(
            f"the parties of project {kit.identity.project} are {', '.join(kit.identity.parties)}"
        )


def _reach(kit: Kit) -> None:
    """UnreachableError at once where the hub is not there at all: whoever typed the command can
    start it."""
    nvflare.Session(kit.identity.admin, kit.folder / "admin").close()


def _aborted(kit: Kit, run: str) -> Path:
    """A mark for the terminal that watches the run: do not try again."""
    return kit.run_folder(run) / "aborted"


def _last_job(kit: Kit, run: str) -> str | None:
    with suppress(OSError):
        return (kit.run_folder(run) / "job").read_text()
    return None


@dataclass
class _Supervisor:
    kit: Kit
    spec: JobSpec
    say: Say
    show: Show = _unseen
    absent: set[str] = field(default_factory=set)
    job: str = ""  # of the newest attempt

    def run(self) -> dict[str, Any]:
        most = (
            self.spec.wait_s
            if self.spec.on_party_loss == "wait"
            else self.spec.deadline_s + START_S
        )
        patience, reported = _Patience(most), ""
        while True:
            ended, reason = self._attempt()
            status = self._status()
            # written after the result, so however the job itself ended
            if status.get("state") == "done":
                return status
            if status.get("state") == "failed":
                raise UserError(f"run {self.spec.run} stopped: {status.get('error')}")
            if _aborted(self.kit, self.spec.run).exists():
                raise UserError(
                    f"run {self.spec.run} was aborted; `protoevfl deploy resume {self.spec.run}` "
                    "goes on"
                )
            reason = str(status.get("error") or reason or ended)
            patience.progress(int(status.get("round", 0)))
            if self.spec.on_party_loss == "abort" or patience.over():
                self._end_last()
                raise PartyLostError(
                    f"run {self.spec.run} stopped in round {status.get('round', 0)}: {reason}; "
                    f"`protoevfl deploy resume {self.spec.run}` goes on with it"
                )
            if reason != reported:
                self.say(f"attempt ended ({reason}); trying again")
            reported = reason
            time.sleep(POLL_S)

    def _end_last(self) -> None:
        """A run that stops is not to go on unwatched: an attempt may still be there where the hub
        was out of reach for a while. Where it still is, `resume` ends it."""
        with (
            suppress(nvflare.UnreachableError),
            nvflare.session(self.kit.identity.admin, self.kit.folder / "admin") as hub,
        ):
            self._end_leftovers(hub)

    def _status(self) -> dict[str, Any]:
        """What the newest attempt wrote; an earlier one's error is not this one's."""
        status = read_status(self.kit, self.spec.run)
        is_of_this_attempt = status.get("job") == self.job or status.get("state") == "done"
        return status if is_of_this_attempt else {"round": status.get("round", 0)}

    def _attempt(self) -> tuple[str, str]:
        """Submit and watch one job: (how it ended, why)."""
        try:
            self.job = ""
            self.show("calling the hub", 0, 0)
            with nvflare.session(self.kit.identity.admin, self.kit.folder / "admin") as hub:
                if waiting := self._without(self._silent(hub)):
                    return "WAITING", waiting
                job = self.job = self._submit(hub)
                self.say(f"attempt {job[:8]} with {', '.join(self._present())}")
                return self._watch(hub, job)
        except nvflare.UnreachableError as error:
            return "UNREACHABLE", str(error)

    def _silent(self, hub: nvflare.Session) -> list[str]:
        """Parties that do not answer the hub: a job with them would not begin."""
        working = hub.working("")
        return [n for n in self._present() if working.get(n) is None]

    def _without(self, names: list[str]) -> str:
        """Leave these parties out where the policy is to skip them; else why the run cannot go on
        now, "" if it can."""
        if self.spec.on_party_loss == "skip" and self.spec.active not in names:
            self.absent |= set(names)
            return ""
        return f"party {', '.join(names)} is not connected to the hub" if names else ""

    def _present(self) -> list[str]:
        return [n for n in self.spec.parties if n not in self.absent]

    def _submit(self, hub: nvflare.Session) -> str:
        self._end_leftovers(hub)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.spec.run
            arguments = {
                "spec": json.dumps(self.spec.to_dict()),
                "absent": ",".join(sorted(self.absent)),
            }
            hub_part = ("protoevfl.deploy.site.Hub", {"active": self.spec.active})
            site_part = ("protoevfl.deploy.site.Site", arguments)
            nvflare.write_job(path, self.spec.run, self._present(), hub_part, site_part)
            job = hub.submit(path)
        durable.write(self.kit.run_folder(self.spec.run) / "job", job.encode())
        return job

    def _end_leftovers(self, hub: nvflare.Session) -> None:
        """The attempt before this one may still be listed or running."""
        job = _last_job(self.kit, self.spec.run)
        if job and not hub.jobs().get(job, FINAL[0]).startswith(FINAL):
            hub.abort(job)

    def _watch(self, hub: nvflare.Session, job: str) -> tuple[str, str]:
        seen, gone, over = hub.seen(), list[str](), 0.0
        roll = _Roll(self._present())
        while True:
            state = hub.state(job)
            status = self._status()
            begun = "state" in status
            self.show(*_display(status))
            if state.startswith(FINAL):
                return state, self._blame(hub, job, state, gone)
            finished = begun and status.get("state") != "running"
            over = over or time.monotonic() * finished
            # the hub waits for a party that is dead
            if finished and time.monotonic() - over > END_S:
                hub.abort(job)
                return state, str(status.get("error", ""))
            if state == "RUNNING" and not finished and not gone:
                gone = roll.gone(hub.working(job), begun)
                if gone:  # the hub does not notice when a party's main process was restarted
                    hub.abort(job)
            if state == "SUBMITTED" and roll.late and (silent := self._silent(hub)):
                hub.abort(job)  # the hub would try again ever more rarely
                return state, self._without(
                    silent
                ) or f"{', '.join(silent)} left before the job began"
            if self.absent and self._returned(hub.seen(), seen):
                hub.abort(job)
            time.sleep(POLL_S)

    def _returned(self, now: dict[str, float], before: dict[str, float]) -> bool:
        back = {n for n in self.absent if now.get(n, 0.0) > before.get(n, 0.0)}
        if back:
            self.say(f"{', '.join(sorted(back))} is back")
            self.absent -= back
        return bool(back)

    def _blame(self, hub: nvflare.Session, job: str, state: str, gone: list[str]) -> str:
        """Which party could not be reached, from what the hub says of the deployment; with `skip`
        it is left out."""
        if gone:
            return f"the job process of {', '.join(gone)} ended"
        failed = [line for line in hub.detail(job) if not line.endswith(": OK")]
        names = [n for n in self.spec.parties if any(line.startswith(f"{n}:") for line in failed)]
        if self.spec.on_party_loss == "skip":
            self.absent |= set(names) - {self.spec.active}
        return f"{state}: {'; '.join(failed)}" if failed else state


def _display(status: dict[str, Any]) -> tuple[str, int, int]:
    """What the display says of a run's status."""
    if "state" not in status:
        return "the parties load the job", 0, 0
    away = f", without {', '.join(status['absent'])}" if status.get("absent") else ""
    what = f"round {status.get('round', 0)}{away}"
    phase = f", {status['phase']}" if status.get("phase") else ""
    return what + phase, int(status.get("step", 0)), int(status.get("steps", 0))


@dataclass
class _Roll:
    """Who has a process for the job. A party that had one, or should have one by now, and has none
    is gone."""

    present: list[str]

    def __post_init__(self) -> None:
        self.known: set[str] = set()
        self.since = time.monotonic()

    @property
    def late(self) -> bool:
        return time.monotonic() - self.since > LATE_S

    def gone(self, working: dict[str, bool | None], begun: bool) -> list[str]:
        self.known |= {n for n, there in working.items() if there}
        return [
            n
            for n in self.present
            if working.get(n) is False and (begun or self.late or n in self.known)
        ]


@dataclass
class _Patience:
    """How long attempts may fail without a new round."""

    seconds: float

    def __post_init__(self) -> None:
        self.best, self.since = -1, time.monotonic()

    def progress(self, number: int) -> None:
        if number > self.best:
            self.best, self.since = number, time.monotonic()

    def over(self) -> bool:
        return time.monotonic() - self.since > self.seconds
