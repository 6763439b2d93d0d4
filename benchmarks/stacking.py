"""(a) A loop over parties against one batched model: seconds of one warm-up step by parties and
seeds.

Both engines answer the same `WarmUp` request (batch 256), so what is timed is what a run does. What
counts is parties x seeds, the number of networks: equal numbers are measured once.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from machine import Line, party, step_seconds, table
from protoevfl.core import random as rnd
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.party import Party
from protoevfl.messages import WarmUp
from protoevfl.method import Method
from protoevfl.rows.table import PartyTable
from protoevfl.settings.presets import build

PARTIES, SEEDS = (1, 4, 16, 64), (1, 2, 4, 8)
STEPS = {"cpu": 2, "cuda": 8}  # a party and epoch
MOST = 128  # networks on a CPU
LOOPED = 64  # networks that a loop goes through on a GPU; more take proportionally longer


def measure(
    kinds: Sequence[str],
    parties: Sequence[int],
    seeds: Sequence[int],
    device: str,
    batch: int = 256,
    repeat: int = 1,
) -> Iterator[Line]:
    """One line for each kind of rows, number of parties and of seeds."""
    steps = STEPS[device]
    for kind in kinds:
        tables = [party(kind, m, batch * steps - 8, 8) for m in range(max(parties))]
        known: dict[int, Line] = {}
        for m in parties:
            for s in (s for s in seeds if m * s <= MOST or device == "cuda"):
                if m * s not in known:
                    known[m * s] = both(kind, tables, m, s, device, batch, repeat)
                yield {
                    "bench": "stacking",
                    "rows": kind,
                    "parties": m,
                    "seeds": s,
                    "steps": 1,
                    "batch": batch,
                    **known[m * s],
                }


def both(
    kind: str,
    tables: Sequence[PartyTable],
    parties: int,
    seeds: int,
    device: str,
    batch: int,
    repeat: int,
) -> Line:
    """{"loop", "stacked"}: seconds of one step of all networks, with start-up behind them;
    "looped": how many of them the loop went through, where not all."""
    where = [(r, p) for r in range(seeds) for p in range(parties)]
    few = where if device == "cpu" else where[:LOOPED]
    keys = {a: rnd.key(a[0], "party", a[1]) for a in where}
    first = method_for(kind, 1, batch)
    loop = InProcess({a: Party(first, tables[a[1]], keys[a], device) for a in few})
    stacked = Stacked(first, {a: tables[a[1]] for a in where}, keys, device)
    loop.exchange({few[0]: WarmUp()})
    stacked.exchange({a: WarmUp() for a in where})

    def train(engine: Any, asked: Any, epochs: int) -> None:
        for _, cohort in engine.members():
            cohort.method = method_for(kind, epochs, batch)
        engine.exchange(asked)

    found = {
        name: step_seconds(
            partial(train, engine, {a: WarmUp() for a in some}), STEPS[device], device, repeat
        )
        for name, engine, some in (("loop", loop, few), ("stacked", stacked, where))
    }
    found["loop"] *= len(where) / len(few)
    return found if few == where else {**found, "looped": len(few)}


def method_for(kind: str, epochs: int, batch: int) -> Method:
    """A warm-up of this many epochs and no more."""
    data = "fashion_mnist" if kind == "images" else "adult"
    return build(
        "proto_evfl",
        dataset=data,
        overrides={
            "warm.epochs": epochs,
            "warm.batch": batch,
            "rounds.count": 0,
            "layers": ["output"],
        },
    )


def render(lines: Sequence[Line]) -> str:
    digits = 2 if min(x["stacked"] for x in lines) < 1e-3 else 1
    heads = [
        "rows",
        "parties",
        "seeds",
        "loop, ms per step",
        "stacked, ms per step",
        "loop / stacked",
    ]
    return table(
        heads,
        [
            [
                x["rows"],
                x["parties"],
                x["seeds"],
                f"{1e3 * x['loop'] / x['steps']:.{digits}f}",
                f"{1e3 * x['stacked'] / x['steps']:.{digits}f}",
                f"{x['loop'] / x['stacked']:.2f}",
            ]
            for x in lines
        ],
    )
