"""Plays a method on a small part of the digits and keeps what crossed. Shared by the tests of the
methods."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from protoevfl.bench.world import RunConfig, World, prepare
from protoevfl.codec import payload_bytes
from protoevfl.core import metrics
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.federation import parties_for
from protoevfl.federation.middleware import Metered, Recorded
from protoevfl.messages import Message
from protoevfl.method import Report
from protoevfl.settings.presets import build
from tests.precision import double_precision
from tests.tiny import finish, reports_of

ALIGNED, POOL, SEEDS = 40, 30, (0, 1)
TOLERANCE = 1e-3  # largest difference of class probabilities between engines


@dataclass
class Played:
    """A finished run of a method for two seeds."""

    worlds: list[World]
    engine: InProcess | Stacked
    method: Any
    transcript: list[tuple[int, int, Message, Any]]
    metered: Metered
    reports: list[Report]

    def predict(self, present: tuple[int, ...] | None = None) -> list[Tensor]:
        parties = present or self.worlds[0].owner.parties
        return finish([self.method.predict(w.owner, parties) for w in self.worlds], self.engine)

    def crossed(self, run: int = 0) -> set[tuple[str, str]]:
        """(direction, type) of everything that went over the border of a passive party."""
        found = set()
        for r, party, request, reply in self.transcript:
            if r == run and party != 0:
                found |= {("down", type(request).__name__), ("up", type(reply).__name__)}
        return found

    def bytes(self, party: int, direction: str, kind: str) -> int:
        return self.metered.counts[0, party, direction, kind]

    def shapes(self, kind: str, field: str) -> set[tuple[int, ...]]:
        messages = [m for _, party, *both in self.transcript if party for m in both]
        return {tuple(getattr(m, field).shape) for m in messages if type(m).__name__ == kind}


def play(
    name: str, overrides: dict[str, Any], engine: str = "stacked", wire: bool = False, **config: Any
) -> Played:
    """Trains `name` with the overrides on top of its fields; config goes to RunConfig."""
    cell = RunConfig(
        **{"dataset": "digits", "aligned": ALIGNED, "pool": POOL, "method": name, **config}
    )
    method = build(name, "default", cell.dataset, overrides)
    worlds = [prepare(cell, seed, "cpu") for seed in SEEDS]
    for world in worlds:
        shorten(world)
    made = parties_for(method, [world.simulated for world in worlds], engine, "cpu")
    if isinstance(made, InProcess):
        made.wire = wire
    recorded = Recorded(Metered(made))
    reports = [
        report for _, report in reports_of([method.train(w.owner) for w in worlds], recorded)
    ]
    assert isinstance(recorded.engine, Metered)
    return Played(worlds, made, method, recorded.transcript, recorded.engine, reports)


def shorten(world: World, rows: int = 60) -> None:
    """Fewer rows to predict: the tests need no precise accuracy."""
    from dataclasses import replace

    world.tables = [replace(t, query=t.query[:rows]) for t in world.tables]
    world.labels = replace(world.labels, query=world.labels.query[:rows])
    if world.owner.central is not None:
        world.owner.central = replace(world.owner.central, query=world.owner.central.query[:rows])


@cache
def _played(name: str, overrides: tuple[tuple[str, Any], ...], engine: str, wire: bool) -> Played:
    return play(name, dict(overrides), engine, wire)


def played(
    name: str, overrides: dict[str, Any], engine: str = "stacked", wire: bool = False
) -> Played:
    """`play`, remembered: several tests look at the same run."""
    return _played(name, tuple(overrides.items()), engine, wire)


def same_numbers(name: str, overrides: dict[str, Any]) -> None:
    """Loop and stacked engine: the same probabilities within TOLERANCE; also over the wire the same
    messages."""
    with double_precision():
        for a, b in zip(
            *(play(name, overrides, engine).predict() for engine in ("loop", "stacked")),
            strict=True,
        ):
            torch.testing.assert_close(a, b, atol=TOLERANCE, rtol=0)
    loop, stacked = played(name, overrides, "loop", True), played(name, overrides, "stacked")
    assert loop.metered.counts == stacked.metered.counts
    for p in loop.predict():
        torch.testing.assert_close(p.sum(1), torch.ones(len(p)))


def any_subset(name: str, overrides: dict[str, Any]) -> None:
    """Every non-empty subset of the parties gets probabilities."""
    run = played(name, overrides)
    for present in ((0,), (1,), (0, 2), (1, 2, 3), (0, 1, 2, 3)):
        for p in run.predict(present):
            assert p.isfinite().all()
            torch.testing.assert_close(p.sum(1), torch.ones(len(p)))


def accuracy(run: Played) -> float:
    scores = [
        metrics.accuracy(p.argmax(1), w.labels.query)
        for p, w in zip(run.predict(), run.worlds, strict=True)
    ]
    return sum(float(s or 0) for s in scores) / len(scores)


def total(messages: list[Message]) -> int:
    return sum(map(payload_bytes, messages))
