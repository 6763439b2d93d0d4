"""The fault campaign: `make faults`, or `python -m tests.faults.campaign [--moments 20] [--only
kill,wire,...]`.

Real hub and parties on this machine. Every case says what was done, whether the run ended as it
must, how long after the fault, and whether the result is the in-process engine's, bit for bit.
Cases that ended well in the results file are passed over, so a campaign can be stopped and taken up
again; `--part 1/2` and `--part 2/2` share it between two processes. Exit code 1 if any case failed.
"""

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tests.faults import damage, disks, hubs, intruders, kills, skips
from tests.faults.cases import Case, finish, quiet
from tests.faults.federation import Federation, expected
from tests.faults.kills import ROUNDS
from tests.faults.proxy import FaultProxy

Trial = Callable[[Federation], Case]
PARTS = ("kill", "stop", "wire", "intruder", "hub", "damage", "disk", "skip")
TOLD = {
    "intruder": intruders.TRIALS,
    "hub": hubs.TRIALS,
    "damage": damage.TRIALS,
    "disk": disks.TRIALS,
    "skip": skips.TRIALS,
}


def trials(
    part: str, options: argparse.Namespace, parties: tuple[str, ...]
) -> Iterator[tuple[str, Trial]]:
    """(key, what to do) of a part of the campaign, the same for the same seed."""
    commit = options.commit
    if part == "kill":
        # all targets in turn: a campaign cut short has some of each
        for number in range(options.moments):
            for target in kills.TARGETS:
                moment = list(kills.moments(target, number + 1, options.seed, parties))[-1]
                yield moment.key, partial(kills.kill_case, moment=moment, commit=commit)
    elif part == "stop":
        for moment in kills.stop_moments(options.stops, options.seed, parties):
            yield (
                moment.key,
                partial(kills.stop_case, moment=moment, seconds=options.stop_s, commit=commit),
            )
    elif part == "wire":
        for what, settings in WIRES.items():
            yield (
                f"proxy-{what}",
                partial(wire, what=what, settings=settings, seed=options.seed, commit=commit),
            )
    else:
        for what, trial in TOLD[part].items():
            yield f"{part}-{what}", partial(told, kind=part, what=what, trial=trial, commit=commit)
        if part == "intruder":
            yield "intruder-after", partial(after, commit=commit)


WIRES: dict[str, dict[str, float]] = {
    "delay 50 ms a piece": {"delay_s": 0.05},
    "stall 2 s at 5 % of pieces": {"stall": 0.05},  # as lost packets look from above
    "slow link, 300 kB/s": {"rate": 300e3},
    "cut 3 % of pieces": {"cut": 0.03},
    "truncate 3 % of pieces": {"truncate": 0.03},
    "flip a bit in 3 % of pieces": {"flip": 0.03},
}


def wire(
    federation: Federation, what: str, settings: dict[str, float], seed: int, commit: str
) -> Case:
    """One party talks to the hub through a proxy that misbehaves."""
    federation.down()
    proxy = FaultProxy(federation.port, seed=random.Random(f"{seed}/{what}").randrange(10**6))
    with intruders.redirected(federation, "shop", proxy.port):
        federation.up()
        size = {"rounds": ROUNDS, "rows": 4000}
        spec = federation.spec(f"wire-{int(time.time())}", settings=size, wait_s=240.0)
        running = federation.submit(spec, quiet)
        federation.wait_for_round(spec.run, 1)
        for name, value in settings.items():
            setattr(proxy, name, value)
        case = Case("proxy", f"proxy-{what}", what, False, 0.0, commit=commit)
        case = finish(federation, running, case, 1, time.monotonic())
        case.detail += f"; {proxy.faults} faults in {proxy.pieces} pieces"
        # no fault, no evidence
        case.good = case.good and (proxy.faults > 0 or bool({"delay_s", "rate"} & set(settings)))
        federation.down()
        proxy.close()
    return case


def told(
    federation: Federation, kind: str, what: str, trial: Callable[[Federation], str], commit: str
) -> Case:
    """A trial that returns the words of the refusal or error, "" when there was none."""
    federation.up()
    start = time.monotonic()
    said = trial(federation)
    return Case(
        kind, f"{kind}-{what}", what, bool(said), time.monotonic() - start, None, said, commit
    )


def after(federation: Federation, commit: str) -> Case:
    """Nobody was harmed."""
    federation.up()
    running, start = (
        federation.submit(federation.spec(f"after-{int(time.time())}"), quiet),
        time.monotonic(),
    )
    case = Case("intruder", "intruder-after", "a run after all of them", False, 0.0, commit=commit)
    return finish(federation, running, case, 0, start)


def ended_well(path: Path) -> set[str]:
    """Keys of the cases that need no repetition: their last line is good."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    last = {line["key"]: line["good"] for line in lines}
    return {key for key, good in last.items() if good}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments", type=int, default=20, help="kills a target")
    parser.add_argument("--stops", type=int, default=2, help="SIGSTOPs a target")
    parser.add_argument("--stop-s", type=float, default=60.0)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument(
        "--keys", default="", help="run cases whose key holds this text, also those that ended well"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--out", type=Path, default=Path("results/faults.jsonl"))
    options = parser.parse_args()
    options.commit = commit()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(130))  # what was started is stopped
    share, shares = map(int, options.part.split("/"))
    done, failed = ended_well(options.out), 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        federation = Federation(Path(folder))
        assert expected(federation.spec("x")).shape == (ROUNDS + 1, len(federation.parties))
        todo = [
            t for part in options.only.split(",") for t in trials(part, options, federation.parties)
        ]
        chosen = [t for t in todo if (options.keys in t[0] if options.keys else t[0] not in done)]
        try:
            for key, trial in chosen[share - 1 :: shares]:
                failed += not report(
                    attempt(federation, key, trial, options.commit, folder), options.out
                )
        finally:
            federation.down()
            print("processes left:", federation.all_processes() or "none")
    return 1 if failed else 0


def attempt(federation: Federation, key: str, trial: Trial, commit: str, folder: str) -> Case:
    """A trial that breaks is a failed case, not the end of the campaign."""
    try:
        case = trial(federation)
    except Exception as error:
        traceback.print_exc()
        case = Case(
            key.split("-")[0],
            key,
            key,
            False,
            0.0,
            None,
            f"{type(error).__name__}: {error}",
            commit,
        )
    # no machine path
    case.detail = re.sub(r"FOLDER/tmp\w+", "FOLDER/COPY", case.detail.replace(folder, "FOLDER"))
    return case


def report(case: Case, out: Path) -> bool:
    took = f"{case.seconds:6.1f} s"
    print(
        f"{'ok  ' if case.good else 'FAIL'} {case.kind:<12} {case.what:<60} {took}  {case.detail}",
        flush=True,
    )
    facts = {n: round(v, 1) if isinstance(v, float) else v for n, v in asdict(case).items()}
    out.parent.mkdir(exist_ok=True)
    with out.open("a") as file:
        file.write(json.dumps(facts) + "\n")
    return case.good


def commit() -> str:
    """The code that was tried; "+" where the package's files differ from it."""

    def say(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True).stdout.strip()

    return say("rev-parse", "--short", "HEAD") + (
        "+" if say("status", "--short", "src/protoevfl/deploy") else ""
    )


if __name__ == "__main__":
    sys.exit(main())
