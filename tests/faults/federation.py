"""A hub and parties as real processes on this machine, for tests and for the fault campaign."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from protoevfl.deploy import os_process, probe, processes, supervise
from protoevfl.deploy.kit import Kit, open_kit
from protoevfl.deploy.provision import Project, provision
from protoevfl.deploy.secret import run_seed
from protoevfl.deploy.spec import JobSpec
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.federation import party_key
from protoevfl.federation.party import Party
from tests.tiny import finish

PARTIES = ("bank", "shop", "tele")


def free_port() -> int:
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        return int(probe_socket.getsockname()[1])


@dataclass
class Federation:
    """Kits under `folder`, one hub and its parties."""

    folder: Path
    parties: tuple[str, ...] = PARTIES
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        names = {n: n for n in self.parties}
        self.project = Project("faults", self.parties[0], "localhost", self.port, "hub", names)
        provision(self.project, self.folder)

    def kit(self, name: str) -> Kit:
        return open_kit(self.folder / name)

    @property
    def everyone(self) -> tuple[str, ...]:
        return ("hub", *self.parties)

    def up(self, *names: str) -> None:
        for name in names or self.everyone:
            if not processes.status(self.kit(name)).running:
                processes.start(self.kit(name), wait_s=90)

    def down(self) -> None:
        for name in reversed(self.everyone):
            processes.stop(self.kit(name), seconds=0.5)

    def main(self, name: str) -> int | None:
        return processes.status(self.kit(name)).pid

    def workers(self, name: str) -> tuple[int, ...]:
        return processes.status(self.kit(name)).workers

    def leftovers(self) -> list[int]:
        """Job processes that are still there."""
        return [pid for name in self.everyone for pid in self.workers(name)]

    def all_processes(self) -> list[int]:
        return [
            p.pid for name in self.everyone for p in os_process.of_folder(self.kit(name).folder)
        ]

    def spec(self, run: str, **changes: Any) -> JobSpec:
        facts: dict[str, Any] = {
            "parties": self.parties, "method": "probe", "rounds": 200, "down": ("Learn", "Embed"),
            "up": ("Embeddings", "Learned"), "deadline_s": 60.0, "wait_s": 120.0,
            "settings": {"rounds": 10, "seconds": 0.3},
        }  # fmt: skip
        return JobSpec(run=run, **{**facts, **changes})

    def submit(self, spec: JobSpec, say: Callable[[str], None] = print) -> "Running":
        return Running(lambda: supervise.submit(self.kit(spec.active), spec, say), self, spec)

    def resume(self, spec: JobSpec, say: Callable[[str], None] = print) -> "Running":
        return Running(lambda: supervise.resume(self.kit(spec.active), spec.run, say), self, spec)

    def result(self, run: str) -> Tensor:
        path = self.kit(self.parties[0]).run_folder(run) / "predictions.safetensors"
        return load_file(path)["probabilities"]

    def round(self, run: str) -> int:
        return int(supervise.read_status(self.kit(self.parties[0]), run).get("round", 0))

    def wait_for_round(self, run: str, number: int, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while self.round(run) < number:
            if time.monotonic() > end:
                raise TimeoutError(
                    f"run {run} is at {self.round(run)}, did not reach round {number} in "
                    f"{seconds:g} s"
                )
            time.sleep(0.05)


class Running(threading.Thread):
    """A run seen through in the background."""

    def __init__(
        self, work: Callable[[], dict[str, Any]], federation: Federation, spec: JobSpec
    ) -> None:
        super().__init__(daemon=True)
        self.work, self.federation, self.spec = work, federation, spec
        self.status: dict[str, Any] = {}
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.status = self.work()
        except Exception as error:
            self.error = error

    def done(self, seconds: float = 300.0) -> dict[str, Any]:
        """Waits for the end; raises what stopped the run."""
        self.join(seconds)
        if self.is_alive():
            raise TimeoutError(f"run {self.spec.run} hangs after {seconds:g} s")
        if self.error is not None:
            raise self.error
        return self.status


def expected(spec: JobSpec, kits: Path | None = None) -> Tensor:
    """What the in-process engine gives for the same probe: each party draws from the secret of its
    kit in `kits`, or from the job's seed where there are no kits."""
    method = probe.make({**spec.settings, "seconds": 0.0})
    seeds = [spec.seed if kits is None else run_seed(kits / n, spec.run) for n in spec.parties]
    parties = {
        (0, m): Party(method, probe.table("p"), party_key(seed, m)) for m, seed in enumerate(seeds)
    }
    engine = InProcess(parties, wire=True)
    owner = probe.owner(len(spec.parties), seeds[0])
    finish([method.train(owner)], engine)
    (result,) = finish([method.predict(owner, owner.parties)], engine)
    return result


def same(federation: Federation, spec: JobSpec) -> bool:
    return torch.equal(federation.result(spec.run), expected(spec, federation.folder))


def kill(*pids: int | None, how: int = signal.SIGKILL) -> None:
    for pid in pids:
        if pid is not None:
            try:
                os.kill(pid, how)
            except ProcessLookupError:
                continue
