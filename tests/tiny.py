"""Tiny random parties and owners, so that a whole run takes a fraction of a second."""

import dataclasses
import typing
from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.federation.lockstep import Engine, lockstep
from protoevfl.federation.owner import LabelOwner
from protoevfl.method import Method, Report
from protoevfl.methods import method_class
from protoevfl.rows.table import PartyTable
from protoevfl.settings import presets

CLASSES, POOL, ALIGNED, QUERY = 3, 24, 12, 10
SMALL = {
    "epochs": 1,
    "rounds": 1,
    "count": 1,
    "members": 2,
    "models": 2,
    "hidden": 16,
    "batch": 12,
    "steps": 2,
    "components": 3,
}


def short(name: str) -> dict[str, Any]:
    """Settings that cut every loop of a method (epochs, rounds, ...), without its guard and inner
    layers."""
    return _short(method_class(name), "")


def _short(cls: Any, prefix: str) -> dict[str, Any]:
    hints, found = typing.get_type_hints(cls), dict[str, Any]()
    for field in dataclasses.fields(cls):
        last, hint = field.name.rsplit("_", 1)[-1], hints[field.name]
        if dataclasses.is_dataclass(hint):
            found |= _short(hint, f"{prefix}{field.name}.")
        elif last in SMALL and hint is int:
            found[prefix + field.name] = SMALL[last]
        elif last == "guard":
            found[prefix + field.name] = False
        elif field.name == "layers":
            found[prefix + field.name] = ["output"]
    return found


def quick(name: str, **settings: Any) -> Method:
    """A method cut short; `head__lr` stands for the setting head.lr."""
    return presets.build(
        name, overrides=short(name) | {n.replace("__", "."): v for n, v in settings.items()}
    )


def keys(count: int, name: str = "tiny") -> Tensor:
    """Keys (count,) of as many members."""
    return torch.tensor([rnd.key(name, i) for i in range(count)])


def labels(seed: int, rows: int) -> Tensor:
    """Labels (rows,) with every class in turn, shuffled."""
    order = rnd.permutation(keys(1, f"labels{seed}"), "order", 0, rows)[0]
    return order % CLASSES


def _rows(seed: int, party: int, what: str, rows: int, shape: tuple[int, ...]) -> Tensor:
    """Rows that carry their class: noise around a mean of the class and party."""
    means = rnd.normal(keys(1, f"means{seed}/{party}"), "mean", 0, (CLASSES, *shape))[0]
    noise = rnd.normal(keys(1, f"{what}{seed}/{party}"), "row", 0, (rows, *shape))[0]
    # pools differ by party
    drawn = {"aligned": seed, "query": seed + 1000, "pool": 2000 + 10 * seed + party}[what]
    return means[labels(drawn, rows)] + 0.5 * noise


def image_table(
    seed: int = 0, party: int = 0, side: int = 8, channels: int = 1, pool: int = POOL
) -> PartyTable:
    """A party of images (channels, side, side) in bytes."""
    sizes = {"pool": pool, "aligned": ALIGNED, "query": QUERY}
    parts = [_rows(seed, party, what, n, (channels, side, side)) for what, n in sizes.items()]
    return PartyTable(
        f"party {party + 1}", *[(60 * x + 128).clamp(0, 255).to(torch.uint8) for x in parts]
    )


def column_table(seed: int = 0, party: int = 0, columns: int = 5, pool: int = POOL) -> PartyTable:
    """A party of columns; the last two encode one category."""
    sizes = {"pool": pool, "aligned": ALIGNED, "query": QUERY}
    parts = [_rows(seed, party, what, n, (columns,)) for what, n in sizes.items()]
    spans = (*((i, i + 1) for i in range(columns - 2)), (columns - 2, columns))
    return PartyTable(f"party {party + 1}", *parts, spans=spans)


def owner(seed: int = 0, parties: int = 2) -> LabelOwner:
    """The owner of the aligned rows' labels."""
    return LabelOwner(labels(seed, ALIGNED), CLASSES, tuple(range(parties)), rnd.key(seed, "owner"))


def addresses(seeds: int, parties: int) -> list[tuple[int, int]]:
    """(run, party) of every party of every run."""
    return [(r, m) for r in range(seeds) for m in range(parties)]


def party_keys(seeds: int, parties: int) -> dict[tuple[int, int], int]:
    """Their keys, as `run.prepare` makes them."""
    return {(r, m): rnd.key(r, "party", m) for r, m in addresses(seeds, parties)}


def finish(
    talks: Sequence[Generator[Any, Any, Any]], engine: Engine, on_party_loss: str = "abort"
) -> list[Any]:
    """What each talk returned, driven to its end."""
    return list(lockstep(dict(enumerate(talks)), engine, on_party_loss=on_party_loss).values())


def reports_of(
    talks: Sequence[Generator[Any, Any, Any]], engine: Engine, on_party_loss: str = "abort"
) -> list[tuple[int, Report]]:
    """(run, report) of everything the talks reported on the way."""
    heard: list[tuple[int, Report]] = []
    lockstep(
        dict(enumerate(talks)),
        engine,
        lambda report, run: heard.append((run, report)),
        on_party_loss,
    )
    return heard
