"""(c) How far is one SimCLR step from what the machine can do?

The floor of a step is the longer of (its floating-point operations / the measured rate of a large
matrix product) and (the bytes it cannot avoid / the measured rate of a large copy), both measured
in the same run on the same threads. Bytes that cannot be avoided: stored rows are read; both views,
every layer's output, the similarities of all pairs and their gradients are written once and read
once; parameters, gradients and both AdamW moments are read, and all but the gradients written.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from machine import Line, clock, party, step_seconds, table
from protoevfl.core import losses
from protoevfl.core import random as rnd
from protoevfl.federation.party import Cohort, Rows
from protoevfl.fit import EAGER_STEPS, _Stepper, fit
from protoevfl.methods.warmup import WarmUpSettings, own_rows, two_views
from protoevfl.models import BatchNorm, Linear, _Conv
from protoevfl.settings.presets import build


def ceilings(device: str, side: int = 2048, megabytes: int = 256) -> Line:
    """{"flops", "bytes"} a second of a float32 matrix product and of a copy (bytes read and
    written)."""
    a, b = torch.rand(side, side, device=device), torch.rand(side, side, device=device)
    source = torch.rand(megabytes * 2**18, device=device)
    target = torch.empty_like(source)
    product, copy = clock(lambda: a @ b, device, 5), clock(lambda: target.copy_(source), device, 5)
    return {"flops": 2 * side**3 / product, "bytes": 2 * source.numel() * 4 / copy}


def measure(
    members: Sequence[int], device: str, batch: int = 256, steps: int = 8, side: int = 2048
) -> Iterator[Line]:
    """One line for each number of stacked LeNets on 2 x 14 x 14 rows."""
    top = ceilings(device, side) if device == "cpu" else ceilings(device, 8192, 1024)
    flops = operations(Step(1, batch, steps, device))  # the counter overcounts grouped convolutions
    for g in members:
        step = Step(g, batch, steps, device)
        moved = traffic(step)
        step.train(1)
        seconds = step_seconds(step.train, steps, device, 2)
        seen = clock(step.look(), device, 3)
        floor = max(g * flops / top["flops"], moved / top["bytes"])
        yield {
            "bench": "floor",
            "members": g,
            "batch": batch,
            "gflop": g * flops / 1e9,
            "mbytes": moved / 1e6,
            "ms": 1e3 * seconds,
            "views_ms": 1e3 * seen,
            "floor_ms": 1e3 * floor,
            "share": floor / seconds,
            "ceiling_gflops": top["flops"] / 1e9,
            "ceiling_gbytes": top["bytes"] / 1e9,
        }


class Step:
    """The warm-up of g stacked parties, taken apart: its views, its loss, an epoch."""

    def __init__(self, g: int, batch: int, steps: int, device: str) -> None:
        tables = [party("images", m, batch * steps - 8, 8) for m in range(g)]
        keys = torch.tensor([rnd.key(0, "party", m) for m in range(g)], device=device)
        method = build("proto_evfl", dataset="fashion_mnist")
        self.cohort = Cohort(method, Rows.of(tables, torch.device(device)), keys)
        self.settings, self.rows, self.batch = (
            WarmUpSettings(epochs=1, batch=batch),
            own_rows(self.cohort),
            batch,
        )
        self.keys = rnd.derive(keys, "warm-up")
        self.views = two_views(self.cohort, self.rows, self.keys, self.settings)
        self.index = torch.arange(batch, device=device).expand(g, -1)

    def loss(self, index: Tensor, step: rnd.Counter) -> Tensor:
        z1, z2 = self.cohort.net(self.views(index, step)).chunk(2, 1)
        return losses.nt_xent(z1, z2, self.settings.temperature)

    def train(self, epochs: int) -> None:
        fit(
            self.loss,
            self.cohort.net.parameters(),
            self.keys,
            self.rows.shape[1],
            epochs=epochs,
            batch=self.batch,
            lr=1e-3,
        )

    def look(self) -> _Stepper:
        """Draws both views of a batch; on a GPU a graph that has been captured."""
        when = (
            torch.zeros((), dtype=torch.int64, device=self.keys.device) if self.keys.is_cuda else 0
        )

        def draw() -> None:
            self.views(self.index, when)

        again = _Stepper(draw, self.keys.device)
        for _ in range(EAGER_STEPS + 1):
            again()
        return again


def operations(step: Step) -> int:
    """Floating-point operations of one step, forward and backward: convolutions and matrix
    products."""
    with FlopCounterMode(display=False) as counter:
        step.loss(step.index, 0).sum().backward()
    step.cohort.net.zero_grad()
    return int(counter.get_total_flops())


def traffic(step: Step) -> int:
    """Bytes of one step that no order of work avoids."""
    net, sizes, first = step.cohort.net, list[int](), list[int]()
    hooks = [m.register_forward_hook(lambda _m, _i, out: sizes.append(out.numel() * 4))
             for m in net.modules() if isinstance(m, _Conv | Linear | BatchNorm)]  # fmt: skip
    hooks.append(net.register_forward_pre_hook(lambda _m, given: first.append(given[0].numel())))
    step.loss(step.index, 0)
    for hook in hooks:
        hook.remove()
    parameters = sum(p.numel() for p in net.parameters()) * 4
    stored = first[0] // 2 * step.rows.element_size()
    pairs = step.index.shape[0] * (2 * step.batch) ** 2 * 4
    return stored + 2 * 4 * first[0] + 4 * sum(sizes) + 4 * pairs + 7 * parameters


def render(lines: Sequence[Line]) -> str:
    heads = [
        "networks",
        "GFLOP per step",
        "MB per step",
        "floor, ms",
        "measured, ms",
        "of it views, ms",
        "share reached",
    ]
    digits = 2 if lines[0]["floor_ms"] < 1 else 1
    cells = [
        [
            x["members"],
            f"{x['gflop']:.2f}",
            f"{x['mbytes']:.0f}",
            f"{x['floor_ms']:.{digits}f}",
            f"{x['ms']:.{digits}f}",
            f"{x['views_ms']:.{digits}f}",
            f"{100 * x['share']:.0f} %",
        ]
        for x in lines
    ]
    flops, moved = lines[-1]["ceiling_gflops"], lines[-1]["ceiling_gbytes"]
    return (
        table(heads, cells)
        + f"\n\nCeilings: {flops:,.0f} GFLOP/s (matrix product), {moved:,.1f} GB/s (copy)."
    )
