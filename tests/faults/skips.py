"""`on_party_loss = "skip"` with Proto-EVFL itself: the run goes on with the parties present, the
lost one returns."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from protoevfl.bench.run import run
from protoevfl.bench.world import RunConfig, prepare
from protoevfl.core import metrics
from protoevfl.deploy import job_file, processes
from protoevfl.deploy.audit_log import verify
from protoevfl.deploy.checkpoints import CheckpointStore
from protoevfl.deploy.spec import JobSpec
from tests.faults.cases import leftovers, quiet
from tests.faults.federation import Federation, kill

DEMO = {"dataset": "digits", "aligned": 200, "pool": 100}
SETTINGS = {"rounds.count": 25, "warm.epochs": 10, "head.epochs": 30}
PRESET = "default"
LOST = 5.0  # points of accuracy that an absence of some rounds may cost


@contextlib.contextmanager
def on_digits(federation: Federation) -> Iterator[None]:
    """Every party takes its part of the digits."""
    paths = [federation.folder / name / "party.toml" for name in federation.parties]
    before = [path.read_text() for path in paths]
    facts = "\n".join(
        f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in DEMO.items()
    )
    for path in paths:
        path.write_text(f"[demo]\n{facts}\n")
    try:
        yield
    finally:
        for path, text in zip(paths, before, strict=True):
            path.write_text(text)


def spec_of(federation: Federation, name: str, **changes: Any) -> JobSpec:
    facts: dict[str, Any] = {
        "classes": 10,
        "settings": SETTINGS,
        "rounds": 60,
        "deadline_s": 20.0,
        "preset": PRESET,
    }
    return job_file.complete(
        JobSpec(f"{name}-{int(time.time())}", federation.parties, **{**facts, **changes})
    )


def accuracy(federation: Federation, name: str) -> float:
    """Per cent, of a run's predictions on the digits."""
    config = RunConfig(parties=len(federation.parties), **DEMO)  # type: ignore[arg-type]
    truth = prepare(config, 0, "cpu").labels.query
    return 100 * float(metrics.accuracy(federation.result(name).argmax(1), truth) or 0)


def simulated(parties: int) -> float:
    """The same job with nobody missing, in this process."""
    config = RunConfig(parties=parties, preset=PRESET, overrides=SETTINGS, **DEMO)  # type: ignore[arg-type]
    return 100 * float(run(config, [0], device="cpu", engine="loop")[0]["metrics"]["accuracy"])


def absences(folder: Path, name: str) -> tuple[list[int], list[int]]:
    """Rounds that the journal has without and with this party's answer."""
    journal = CheckpointStore(folder / "journal", keep=None)
    lost = [n for n in journal.rounds() if name in journal.load(n).header["lost"]]
    return lost, [n for n in journal.rounds() if n not in lost]


def away_and_back(federation: Federation, victim: str = "tele", away_s: float = 15.0) -> str:
    """kill -9 of a party's main process in training; it is started again while the others are still
    training."""
    federation.up()
    with on_digits(federation):
        spec = spec_of(federation, "skip", on_party_loss="skip")
        running = federation.submit(spec, quiet)
        federation.wait_for_round(spec.run, 4)
        kill(federation.main(victim))
        time.sleep(away_s)
        federation.up(victim)
        status = running.done(400)
    folder = federation.kit(federation.parties[0]).run_folder(spec.run)
    lost, there = absences(folder, victim)
    found, whole = accuracy(federation, spec.run), simulated(len(federation.parties))
    for name in federation.parties:
        verify(federation.kit(name).run_folder(spec.run) / "audit.jsonl")
    good = (
        status["state"] == "done" and lost and max(there) > max(lost) > 4 and found > whole - LOST
    )
    said = f"{victim} missed rounds {_span(lost)} of {max(there)}; accuracy {found:.1f} %, {whole:.1f} % with all"
    print("     ", said, status["state"], flush=True)
    return said if good and not leftovers(federation) else ""


def away_to_the_end(federation: Federation, victim: str = "shop") -> str:
    """The party does not come back: the others train and predict without it."""
    federation.up()
    with on_digits(federation):
        # long enough for everybody's first answer on a loaded machine: the party must be there first
        spec = spec_of(
            federation,
            "skip-end",
            on_party_loss="skip",
            settings={**SETTINGS, "rounds.count": 4},
            deadline_s=90.0,
        )
        running = federation.submit(spec, quiet)
        federation.wait_for_round(spec.run, 2)
        kill(federation.main(victim))
        status = running.done(400)
    lost, there = absences(federation.kit(federation.parties[0]).run_folder(spec.run), victim)
    p = federation.result(spec.run)
    assert there, f"{victim} answered nothing before it was killed: no evidence either way"
    good = status["state"] == "done" and bool(lost) and max(lost) > max(there)
    good = good and torch.allclose(p.sum(1), torch.ones(len(p)))
    processes.stop(federation.kit(victim), seconds=0.5)
    federation.up(victim)
    said = f"{victim} missed rounds {_span(lost)} to the end; accuracy {accuracy(federation, spec.run):.1f} %"
    print("     ", said, status["state"], flush=True)
    return said if good and not leftovers(federation) else ""


def _span(numbers: list[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}" if numbers else "none"


TRIALS: dict[str, Callable[[Federation], str]] = {
    "Proto-EVFL, a party away for some rounds": away_and_back,
    "Proto-EVFL, a party away to the end": away_to_the_end,
}
