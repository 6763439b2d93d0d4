"""What test_distributed.py starts with torchrun: everything computed alone first, then by both
processes together.

The first process prints one JSON object, name -> largest difference.
"""

import json
import sys
from typing import Any

import torch
from torch import Tensor

from protoevfl import distributed
from protoevfl.core import augment, losses, transport
from protoevfl.core import random as rnd
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.party import Cohort, Party, Rows
from protoevfl.methods.warmup import gather, own_rows
from protoevfl.models import embed, extractor
from tests.tiny import addresses, column_table, finish, image_table, keys, owner, party_keys, quick

MAKE = {"images": image_table, "tables": column_table}
METHODS = {
    "images": ("proto_evfl", "fedhssl"),
    "tables": ("proto_evfl", "one_shot", "ss_vfl_c", "fedcvt"),
}


def cohort(kind: str) -> Cohort:
    tables = [MAKE[kind](0, m, pool=23) for m in range(2)]
    return Cohort(quick("proto_evfl"), Rows.of(tables, torch.device("cpu")), keys(2))


def rows_of(kind: str) -> dict[str, Tensor]:
    """Rows asked for by number, columns drawn from them, embeddings, means: of rows that are dealt
    out or not."""
    some = cohort(kind)
    rows = own_rows(some)  # 23 of the pool and 12 aligned ones
    index = rnd.permutation(keys(2, "order"), "rows", 0, rows.shape[1])
    mean, spread = distributed.moments(some.rows.pool, lambda x: embed(some.net, x))
    found = {
        "rows": gather(rows, index),
        "embeddings": embed(some.net, some.rows.pool),
        "mean": mean,
        "std": spread,
    }
    if kind == "tables":
        spans = augment.span_index([1, 1, 1, 2])
        batch = found["rows"][:, :9]
        found["columns"] = augment.corrupt_columns(batch, rows, spans, keys(2), "corrupt", 0, 0.5)
    return {name: value.double() for name, value in found.items()}


def one_step(kind: str) -> dict[str, Tensor]:
    """Loss, gradients and running figures of a step on an odd number of rows, in double
    precision."""
    shape = (1, 8, 8) if kind == "images" else (5,)
    net = extractor(shape, keys(2)).double().train()
    x = rnd.normal(keys(2, "batch"), "x", 0, (2 * 7, *shape)).double()
    mu, prior = (
        rnd.normal(keys(2, "mu"), "mu", 0, (3, net.width)).double(),
        torch.full((2, 3), 1 / 3).double(),
    )
    with distributed.splitting():
        z1, z2 = net(x).chunk(2, 1)
        loss = losses.nt_xent(z1, z2, 0.2) + transport.dual_cost(z1, mu, prior, 0.2)
    loss.sum().backward()
    distributed.average(net.parameters())
    return (
        {"loss": loss.detach()}
        | {n: p.grad for n, p in net.named_parameters()}
        | dict(net.named_buffers())
    )


def whole_run(name: str, kind: str, engine: str = "loop") -> Tensor:
    """Class probabilities after a tiny run of a method."""
    method = quick(name)
    tables = {a: MAKE[kind](0, a[1], pool=23) for a in addresses(1, 2)}
    mine, by = owner(0, 2), party_keys(1, 2)
    parties: Any = Stacked(method, tables, by) if engine == "stacked" else None
    parties = parties or InProcess({a: Party(method, t, by[a]) for a, t in tables.items()})
    finish([method.train(mine)], parties)
    return finish([method.predict(mine, (0, 1))], parties)[0]


def everything() -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for kind in MAKE:
        found |= {f"rows/{kind}/{n}": t for n, t in rows_of(kind).items()}
        found |= {f"step/{kind}/{n}": t for n, t in one_step(kind).items()}
        found |= {f"run/{kind}/{name}": whole_run(name, kind) for name in METHODS[kind]}
    return found | {"run/stacked/proto_evfl": whole_run("proto_evfl", "tables", "stacked")}


def main() -> None:
    torch.set_num_threads(1)
    alone = everything()
    distributed.join("cpu")
    together = everything()
    assert distributed.count() == 2
    pool = cohort("tables").rows.pool
    assert isinstance(pool, distributed.Dealt)
    found = {name: float((together[name] - value).abs().max()) for name, value in alone.items()}
    found["held"] = pool.local.shape[1]
    if distributed._block(2).start == 0:
        json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
