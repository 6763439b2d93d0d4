"""One case of the campaign and how every run in it must end."""

import signal
import time
from dataclasses import dataclass
from typing import Any

from tests.faults.federation import Federation, Running, kill, same

SLACK_S = 120.0  # to start an attempt and to end one, beyond what the job's own deadlines allow


@dataclass
class Case:
    """One line of the campaign's file; `key` names the moment, so that a later call can pass over
    it."""

    kind: str
    key: str
    what: str
    good: bool
    seconds: float  # from the fault to the end of the run
    # from the fault to the first round after it (or the end of the run)
    recovery_s: float | None = None
    detail: str = ""
    commit: str = ""


def quiet(text: str) -> None:
    """Nobody watches."""


def finish(federation: Federation, running: Running, case: Case, at: int, start: float) -> Case:
    """Sees the run through: same result bit for bit (by itself or by `resume`), in time, and no
    process left."""
    spec = running.spec
    case.recovery_s = _next_round(federation, running, at, start)
    try:
        running.done(max(1.0, spec.deadline_s + spec.wait_s + SLACK_S - (time.monotonic() - start)))
        case.good = same(federation, spec)
        case.detail = "same result" if case.good else "another result"
    except TimeoutError as error:  # beyond the deadline: a failure, even if it can be resumed
        case.good, case.detail = (
            False,
            f"{error}; resume: {resume(federation, spec.run) and same(federation, spec)}",
        )
    except Exception as error:
        case.good = resume(federation, spec.run) and same(federation, spec)
        case.detail = (
            f"{type(error).__name__}: {error} -> resume: {'same result' if case.good else 'failed'}"
        )
    case.seconds = time.monotonic() - start
    left = leftovers(federation)
    if left:
        case.good, case.detail = False, f"{case.detail}; {len(left)} job process(es) left over"
        federation.down()
    return case


def _next_round(federation: Federation, running: Running, at: int, start: float) -> float | None:
    limit = start + running.spec.deadline_s + running.spec.wait_s + SLACK_S
    while time.monotonic() < limit:
        if not running.is_alive() or federation.round(running.spec.run) > at:
            return time.monotonic() - start
        time.sleep(0.1)
    return None


def leftovers(federation: Federation, seconds: float = 60.0) -> list[int]:
    """Job processes that are still there some time after the run. Where the hub was killed at the
    end, a party's job ends 18 to 21 s later, when NVFlare takes the hub for gone."""
    end = time.monotonic() + seconds
    while (left := federation.leftovers()) and time.monotonic() < end:
        time.sleep(0.5)
    return left


def resume(federation: Federation, run: str) -> bool:
    """Everything up, then `resume`, as a person would do it."""
    from protoevfl.deploy import supervise

    federation.up()
    try:
        supervise.resume(federation.kit(federation.parties[0]), run, quiet)
    except Exception as error:
        print(f"      resume: {error}")
        return False
    return True


def hold(pids: tuple[int | None, ...], seconds: float) -> None:
    """SIGSTOP for a while, then SIGCONT."""
    kill(*pids, how=signal.SIGSTOP)
    time.sleep(seconds)
    kill(*pids, how=signal.SIGCONT)


def pids_of(federation: Federation, target: str, victim: str) -> tuple[Any, ...]:
    """The processes that a case is about."""
    return federation.workers(victim) if target == "party worker" else (federation.main(victim),)
