"""(a) A loop over parties against one batched model: seconds of one warm-up epoch by parties and seeds.

Both engines answer the same `WarmUp` request (one epoch, batch 256), so what is timed is what a run does.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from machine import Line, clock, party, table
from protoevfl.core import random as rnd
from protoevfl.engines.in_process import InProcess
from protoevfl.engines.stacked import Stacked
from protoevfl.messages import WarmUp
from protoevfl.party import Party
from protoevfl.presets import build

PARTIES, SEEDS = (1, 4, 16, 64), (1, 2, 4, 8)
STEPS = 2  # a party and epoch
MOST = 128  # parties x seeds on a CPU


def measure(
    kinds: Sequence[str], parties: Sequence[int], seeds: Sequence[int], device: str, batch: int = 256, repeat: int = 1
) -> Iterator[Line]:
    """One line for each kind of rows, number of parties and of seeds."""
    for kind in kinds:
        data = "fashion_mnist" if kind == "images" else "adult"
        method = build("proto_evfl", dataset=data, overrides={"warm.epochs": 1, "warm.batch": batch, "rounds.count": 0,
                                                              "layers": ["output"]})  # fmt: skip
        tables = [party(kind, m, batch * STEPS - 8, 8) for m in range(max(parties))]
        for m in parties:
            for s in (s for s in seeds if m * s <= MOST or device == "cuda"):
                where = [(r, p) for r in range(s) for p in range(m)]
                keys = {a: rnd.key(a[0], "party", a[1]) for a in where}
                asked = {a: WarmUp() for a in where}
                times = {
                    name: clock(partial(engine.exchange, asked), device, repeat)
                    for name, engine in engines(method, {a: tables[a[1]] for a in where}, keys, device).items()
                }
                yield {"bench": "stacking", "rows": kind, "parties": m, "seeds": s, "steps": STEPS, "batch": batch,
                       **times}  # fmt: skip


def engines(method: Any, tables: Any, keys: Any, device: str) -> dict[str, Any]:
    """Both engines, with an epoch behind them (start-up is not what is measured)."""
    loop = InProcess({a: Party(method, tables[a], keys[a], device) for a in tables})
    stacked = Stacked(method, tables, keys, device)
    first = next(iter(tables))
    loop.exchange({first: WarmUp()})
    stacked.exchange({a: WarmUp() for a in tables})
    if device == "cuda":
        torch.cuda.synchronize()
    return {"loop": loop, "stacked": stacked}


def render(lines: Sequence[Line]) -> str:
    heads = ["rows", "parties", "seeds", "loop, ms a step", "stacked, ms a step", "loop / stacked"]
    return table(heads, [
        [x["rows"], x["parties"], x["seeds"], f"{1e3 * x['loop'] / x['steps']:.1f}",
         f"{1e3 * x['stacked'] / x['steps']:.1f}", f"{x['loop'] / x['stacked']:.2f}"] for x in lines
    ])  # fmt: skip
