"""The fault campaign: `make faults`, or `python -m tests.faults.campaign [--moments 20] [--only kill,proxy,...]`.

Real hub and parties on this machine. Every case says what was done, whether the run ended as it must, how long after
the fault, and whether the result is the in-process engine's, bit for bit. Exit code 1 if any case failed.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults import intruders
from tests.faults.federation import Federation, expected, kill, same
from tests.faults.proxy import FaultProxy

ROUNDS = 10


@dataclass
class Case:
    """One line of the campaign's table."""

    kind: str
    what: str
    good: bool
    seconds: float
    detail: str = ""


def kills(federation: Federation, moments: int, rng: random.Random) -> Iterator[Case]:
    """kill -9 of any worker, any main process, the hub, at random moments from submission to the last round."""
    for target in ("party worker", "party main process", "hub"):
        for number in range(moments):
            yield _kill(federation, target, rng, f"kill-{target.split()[-1]}-{number}-{rng.randrange(10**6)}")


def _kill(federation: Federation, target: str, rng: random.Random, run: str) -> Case:
    federation.up()
    victim = "hub" if target == "hub" else rng.choice(federation.parties)
    spec = federation.spec(run)
    running = federation.submit(spec, _quiet)
    moment = rng.uniform(1.0, 30.0)
    time.sleep(moment)
    at = federation.round(run)
    pids = federation.workers(victim) if target == "party worker" else (federation.main(victim),)
    kill(*pids)
    start = time.monotonic()
    if target != "party worker":
        time.sleep(rng.uniform(0, 3))
        federation.up(victim)
    return _finish(federation, running, "kill -9", f"{target} {victim} {moment:.1f} s in, round {at}", start)


def stops(federation: Federation, seconds: float, rng: random.Random) -> Iterator[Case]:
    """SIGSTOP for a while, then SIGCONT; the deadline for an answer is shorter than the stop."""
    for what in ("party worker", "party main process", "hub"):
        federation.up()
        victim = "hub" if what == "hub" else rng.choice(federation.parties[1:])
        spec = federation.spec(f"stop-{rng.randrange(10**6)}", deadline_s=20.0, wait_s=180.0)
        running = federation.submit(spec, _quiet)
        federation.wait_for_round(spec.run, 3)
        pids = federation.workers(victim) if "worker" in what else (federation.main(victim),)
        start = time.monotonic()
        kill(*pids, how=signal.SIGSTOP)
        time.sleep(seconds)
        kill(*pids, how=signal.SIGCONT)
        yield _finish(federation, running, f"SIGSTOP {seconds:g} s", f"{what} {victim}", start)


def wires(federation: Federation, rng: random.Random) -> Iterator[Case]:
    """One party talks to the hub through a proxy that misbehaves."""
    faults = {
        "delay 50 ms a piece": {"delay_s": 0.05},
        "cut 1 % of pieces": {"cut": 0.01},
        "truncate 1 % of pieces": {"truncate": 0.01},
        "flip a bit in 1 % of pieces": {"flip": 0.01},
    }
    for what, settings in faults.items():
        federation.down()
        proxy = FaultProxy(federation.port, seed=rng.randrange(10**6))
        with intruders.redirected(federation, "shop", proxy.port):
            federation.up()
            spec = federation.spec(
                f"wire-{rng.randrange(10**6)}", settings={"rounds": ROUNDS, "rows": 4000}, wait_s=240.0
            )
            running = federation.submit(spec, _quiet)
            federation.wait_for_round(spec.run, 1)
            for name, value in settings.items():
                setattr(proxy, name, value)
            start = time.monotonic()
            case = _finish(federation, running, "proxy", what, start)
            case.detail += f"; {proxy.faults} faults in {proxy.pieces} pieces"
            yield case
            federation.down()
            proxy.close()


def _finish(federation: Federation, running: object, kind: str, what: str, start: float) -> Case:
    from tests.faults.federation import Running

    assert isinstance(running, Running)
    spec = running.spec
    try:
        running.done(spec.deadline_s + spec.wait_s + 120)
        good = same(federation, spec)
        detail = "same result, bit for bit" if good else "another result"
    except TimeoutError as error:  # beyond the deadline: a failure, even if it can be resumed
        good, detail = False, f"{error}; resume: {_resume(federation, spec.run) and same(federation, spec)}"
    except Exception as error:
        good = _resume(federation, spec.run) and same(federation, spec)
        detail = f"{type(error).__name__}: {error} -> resume: {'same result' if good else 'failed'}"
    seconds = time.monotonic() - start
    time.sleep(3)
    left = federation.leftovers()
    if left:
        time.sleep(15)
        left = federation.leftovers()
    return Case(kind, what, good and not left, seconds, detail + (f"; left over: {left}" if left else ""))


def _resume(federation: Federation, run: str) -> bool:
    from protoevfl.deploy import supervise

    federation.up()
    try:
        supervise.resume(federation.kit(federation.parties[0]), run, _quiet)
    except Exception as error:
        print(f"      resume: {error}")
        return False
    return True


def _quiet(text: str) -> None:
    """Nobody watches."""


def intruder_cases(federation: Federation) -> Iterator[Case]:
    """Who must not get in, and what must not be done."""
    federation.up()
    for what, trial in intruders.TRIALS.items():
        start = time.monotonic()
        try:
            refused = trial(federation)
            good, detail = bool(refused), refused
        except Exception as error:
            good, detail = False, f"{type(error).__name__}: {error}"
        yield Case("intruder", what, good, time.monotonic() - start, detail)
    federation.up()
    spec = federation.spec(f"after-{int(time.time())}")
    yield _finish(federation, federation.submit(spec, _quiet), "intruder", "a run after all of them", time.monotonic())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--stop-s", type=float, default=60.0)
    parser.add_argument("--only", default="kill,stop,wire,intruder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("faults.jsonl"))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, options.out.open("a") as out:
        federation = Federation(Path(folder))
        assert expected(federation.spec("x")).shape == (ROUNDS + 1, len(federation.parties))
        parts: dict[str, Callable[[], Iterator[Case]]] = {
            "kill": lambda: kills(federation, options.moments, rng),
            "stop": lambda: stops(federation, options.stop_s, rng),
            "wire": lambda: wires(federation, rng),
            "intruder": lambda: intruder_cases(federation),
        }
        try:
            for part in options.only.split(","):
                for case in parts[part]():
                    failed += not case.good
                    print(f"{'ok  ' if case.good else 'FAIL'} {case.kind:<14} {case.what:<52} {case.seconds:6.1f} s  "
                          f"{case.detail}", flush=True)  # fmt: skip
                    out.write(json.dumps(asdict(case)) + "\n")
                    out.flush()
        finally:
            federation.down()
            print("processes left:", federation.all_processes() or "none")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
