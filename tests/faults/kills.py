"""kill -9 and SIGSTOP at seeded random moments, spread over a run's start, its training and its
prediction.

The moments of a target are the same for the same seed, whatever ran before: a failed one can be
repeated alone.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.cases import Case, finish, hold, pids_of, quiet
from tests.faults.federation import Federation, Running, kill

TARGETS = ("party worker", "party main process", "hub")
PHASES = (
    "start",
    "training",
    "training",
    "start",
    "training",
    "prediction",
    "training",
    "start",
    "training",
    "end",
)
ROUNDS = 10
START_S = 20.0  # about as long as it takes from submission to the first round


@dataclass(frozen=True)
class Moment:
    """When and whom; `wait_s` counts from the phase's beginning."""

    key: str
    target: str
    victim: str
    phase: str
    round: int
    wait_s: float
    back_s: float  # until the killed process is started again


def moments(target: str, count: int, seed: int, parties: tuple[str, ...]) -> Iterator[Moment]:
    for number in range(count):
        rng = random.Random(f"{seed}/{target}/{number}")
        phase = PHASES[number % len(PHASES)]
        victim = "hub" if target == "hub" else rng.choice(parties)
        after = {
            "start": 0,
            "training": rng.randrange(1, ROUNDS),
            "prediction": ROUNDS,
            "end": ROUNDS + 1,
        }[phase]
        worker = target == "party worker"
        span = {
            "start": 8.0 if worker else START_S,
            "training": 0.4,
            "prediction": 0.3,
            "end": 2.0,
        }[phase]
        key = f"{target.replace(' ', '-')}-{number}-of-seed-{seed}"
        yield Moment(key, target, victim, phase, after, rng.uniform(0, span), rng.uniform(0, 3))


def kill_case(federation: Federation, moment: Moment, commit: str) -> Case:
    """One kill; the run must end with the same result as if nothing had happened."""
    federation.up()
    running = federation.submit(federation.spec(f"kill-{moment.key}-{int(time.time())}"), quiet)
    pids, at = _reach(federation, running, moment)
    start = time.monotonic()
    kill(*pids)
    if moment.target != "party worker":
        time.sleep(moment.back_s)
        federation.up(moment.victim)
    what = f"{moment.target} {moment.victim}, {moment.phase}, {moment.wait_s:.1f} s in, round {at}"
    case = Case("kill -9", moment.key, what, False, 0.0, commit=commit)
    case = finish(federation, running, case, at, start)
    if not any(pids):  # the job was over before the blow: no evidence either way
        case.detail += "; nobody to kill"
        case.good = case.good and moment.phase == "end"
    return case


def _reach(
    federation: Federation, running: Running, moment: Moment
) -> tuple[tuple[int | None, ...], int]:
    """Wait for the moment: (the processes to hit, the round)."""
    run = running.spec.run
    if moment.phase == "start" and moment.target == "party worker":
        end = time.monotonic() + 60
        while not federation.workers(moment.victim) and time.monotonic() < end:
            time.sleep(0.1)
    elif moment.phase != "start":
        federation.wait_for_round(run, min(moment.round, ROUNDS + 1))
    time.sleep(moment.wait_s)
    return pids_of(federation, moment.target, moment.victim), federation.round(run)


def stop_moments(count: int, seed: int, parties: tuple[str, ...]) -> Iterator[Moment]:
    """SIGSTOP: `count` moments a target, in training."""
    for target in TARGETS:
        for number in range(count):
            rng = random.Random(f"{seed}/stop/{target}/{number}")
            victim = "hub" if target == "hub" else rng.choice(parties)
            key = f"stop-{target.replace(' ', '-')}-{number}-of-seed-{seed}"
            yield Moment(
                key,
                target,
                victim,
                "training",
                rng.randrange(1, ROUNDS - 2),
                rng.uniform(0, 0.4),
                0.0,
            )


def stop_case(federation: Federation, moment: Moment, seconds: float, commit: str) -> Case:
    """The deadline for an answer is shorter than the stop."""
    federation.up()
    spec = federation.spec(f"{moment.key}-{int(time.time())}", deadline_s=20.0, wait_s=180.0)
    running = federation.submit(spec, quiet)
    pids, at = _reach(federation, running, moment)
    start = time.monotonic()
    hold(pids, seconds)
    what = f"{moment.target} {moment.victim}, {moment.phase}, round {at}"
    return finish(
        federation,
        running,
        Case(f"SIGSTOP {seconds:g} s", moment.key, what, False, 0.0, commit=commit),
        at,
        start,
    )
