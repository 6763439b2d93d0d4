"""What a job will send, found by playing it: the method talks to made-up parties in this process, cut short.

    wire("proto_evfl", "default")  ->  down: WarmUp, Learn, Embed, Describe   up: Embeddings, Learned, Statistics

Every loop is cut to two turns at most, which leaves no type out: nothing a method says for the first time comes later
than its second turn (`tests/deploy/test_rehearsal.py` compares with complete recorded runs of every method). A job is
played with and without a class that has no label, because only the labels will tell. No file is read.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from protoevfl.core import random as rnd
from protoevfl.deploy import probe
from protoevfl.errors import UserError
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.lockstep import finish
from protoevfl.federation.middleware import Recorded
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Party
from protoevfl.method import Method
from protoevfl.methods import METHODS
from protoevfl.rows.table import PartyTable
from protoevfl.settings.presets import build

Types = tuple[tuple[str, ...], tuple[str, ...]]  # names of the message types (down, up), in order of appearance
LOOPS = ("epochs", "rounds", "count", "members", "models", "steps")
TURNS = 2
ALONE = ("local", "upper_bound")  # they ask no other party: there is nothing to deploy
CLASSES, POOL, ALIGNED, QUERY, COLUMNS = 3, 24, 12, 6, 5
T = TypeVar("T")


def deployable() -> tuple[str, ...]:
    """Names of the methods that can be run between companies."""
    return (probe.Probe.name, *(name for name in METHODS if name not in ALONE))


def wire(name: str, preset: str = "default", settings: Mapping[str, Any] | None = None, task: str = "train") -> Types:
    """The message types that a job of this method, preset and settings exchanges with another company."""
    if name not in deployable():
        raise UserError(f"method {name!r} cannot be run between companies; these can: {', '.join(deployable())}")
    made = _probe(settings or {}) if name == probe.Probe.name else build(name, preset, "table", settings or {})
    played = [_play(_cut(made), unseen) for unseen in ((), (CLASSES - 1,))]
    crossed = [both for talk in played for both in talk[1 if task == "predict" else 0]]
    return tuple(dict.fromkeys(d for d, _ in crossed)), tuple(dict.fromkeys(u for _, u in crossed))


def _probe(settings: Mapping[str, Any]) -> Method:
    return probe.make({**settings, "seconds": 0.0, "rows": 1, "width": 1})


def _cut(value: T) -> T:
    """The same settings with every loop at TURNS turns at most; a loop that is switched off stays so."""
    short: dict[str, Any] = {}
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        now = getattr(value, field.name)
        if dataclasses.is_dataclass(now):
            short[field.name] = _cut(now)
        elif type(now) is int and field.name.rsplit("_", 1)[-1] in LOOPS:
            short[field.name] = min(now, TURNS)
    return dataclasses.replace(value, **short)  # type: ignore[type-var]


def _play(method: Method, unseen: tuple[int, ...]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """[(request, reply)] of a whole run, and of its prediction alone, with the party that is not the active one."""
    keys = {(0, m): rnd.key("rehearsal", m) for m in range(2)}
    engine = Recorded(InProcess({a: Party(method, _table(a[1]), key) for a, key in keys.items()}))
    labels = torch.arange(ALIGNED) % (CLASSES - len(unseen))
    owner = LabelOwner(labels, CLASSES, (0, 1), rnd.key("rehearsal", "owner"), unseen)
    finish([method.train(owner)], engine)
    before = len(engine.transcript)
    finish([method.predict(owner, owner.parties)], engine)
    said = [(party, type(q).__name__, type(r).__name__) for _, party, q, r in engine.transcript]
    return [(q, r) for party, q, r in said if party], [(q, r) for party, q, r in said[before:] if party]


def _table(party: int) -> PartyTable:
    """Made-up columns, a different draw for each party."""
    key = torch.tensor([rnd.key("rehearsal table", party)])
    pool, aligned, query = (rnd.normal(key, "rows", i, (n, COLUMNS))[0] for i, n in enumerate((POOL, ALIGNED, QUERY)))
    return PartyTable(f"party {party}", pool, aligned, query, tuple((i, i + 1) for i in range(COLUMNS)))
