"""(e) The common practice to compare with: a DataLoader for each party, rows augmented one by one.

Every party has a plain LeNet of torch.nn and a `DataLoader` (shuffled, default collate) over a
Dataset that returns two random views of a row; parties train one after the other. Model, batch,
optimiser, loss and the changes a view makes are those of our warm-up; only how it is carried out
differs.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from machine import Line, clock, party, processor_seconds, table
from protoevfl.bench.world import RunConfig, prepare
from protoevfl.core import random as rnd
from protoevfl.core.augment import DEFAULT_VIEWS as V
from protoevfl.core.losses import nt_xent
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.party import Party
from protoevfl.messages import WarmUp
from protoevfl.method import Method
from protoevfl.rows import sources
from protoevfl.rows.table import PartyTable
from protoevfl.settings.presets import build

STRENGTH, TEMPERATURE = 0.6, 0.2


class Views(Dataset[tuple[Tensor, Tensor]]):
    """Two random views of each row (c, H, W) of bytes."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = self.rows[index].float() / 255
        return view(x), view(x)


def view(x: Tensor) -> Tensor:
    """One random view of x (c, H, W): affine map, brightness, noise, an erased rectangle; as
    core/augment.py."""
    _, height, width = x.shape
    u = torch.rand(9).tolist()
    scale, angle, right, down, bright = ((2 * v - 1) * STRENGTH for v in u[:5])
    turn, grown = torch.tensor(V.angle * angle), 1 + V.scale * scale
    a, b = float(grown * turn.cos()), float(grown * turn.sin())
    theta = torch.tensor([[[a, -b, V.shift * right], [b, a, V.shift * down]]])
    grid = F.affine_grid(theta, [1, *x.shape], align_corners=False)
    y = F.grid_sample(x[None], grid, align_corners=False)[0]
    y = y * (1 + V.brightness * bright) + V.noise * STRENGTH * torch.randn_like(y)
    tall, wide = (
        2 + int(u[i] * (min(V.erase, size // 2) - 1)) for i, size in ((5, height), (6, width))
    )
    top, left = int(u[7] * (height - tall + 1)), int(u[8] * (width - wide + 1))
    y[:, top : top + tall, left : left + wide] = 0
    return y


def lenet(channels: int, side: int, width: int = 84) -> nn.Module:
    """The warm-up's LeNet-5 with batch-norm, of torch's own layers."""
    flat = 16 * (side // 2 // 2) ** 2
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, padding=2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(flat, 120, bias=False),
        nn.BatchNorm1d(120),
        nn.ReLU(),
        nn.Linear(120, width, bias=False),
        nn.BatchNorm1d(width, affine=False),
    )


def epoch(rows: Tensor, batch: int, workers: int) -> float:
    """One epoch of one party; returns its mean loss."""
    net = lenet(rows.shape[1], rows.shape[2]).train()
    tool = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)
    loader = DataLoader(
        Views(rows), batch_size=batch, shuffle=True, drop_last=True, num_workers=workers
    )
    total = 0.0
    for first, second in loader:
        z1, z2 = net(torch.cat([first, second])).chunk(2)
        loss = nt_xent(z1, z2, TEMPERATURE)
        tool.zero_grad()
        loss.backward()
        tool.step()
        total += loss.item()
    return total / max(1, len(loader))


def tables_of(rows: int) -> list[PartyTable]:
    """Four parties of Fashion-MNIST with 7,000 rows (pool and aligned), or made-up ones of the same
    shape."""
    if sources.available("fashion_mnist"):
        world = prepare(RunConfig(dataset="fashion_mnist", aligned=200, pool=rows - 200), 0, "cpu")
        return world.tables
    return [party("images", m, rows - 200, 200) for m in range(4)]


def ours(
    method: Method, tables: Sequence[PartyTable], kind: str, device: str
) -> Stacked | InProcess:
    """The engine under test, parties fresh."""
    keys = {(0, m): rnd.key(0, "party", m) for m in range(len(tables))}
    named = {(0, m): t for m, t in enumerate(tables)}
    if kind == "stacked":
        return Stacked(method, named, keys, device)
    return InProcess({a: Party(method, named[a], keys[a], device) for a in named})


def measure(
    device: str,
    rows: int = 7_000,
    batch: int = 256,
    workers: Sequence[int] = (0, 2),
    rounds: int = 3,
) -> Iterator[Line]:
    """Seconds of one warm-up epoch of four parties: our engines and the DataLoaders in turn,
    several times."""
    tables = tables_of(rows)
    settings = {"warm.epochs": 1, "warm.batch": batch, "rounds.count": 0, "layers": ["output"]}
    method = build("proto_evfl", dataset="fashion_mnist", overrides=settings)
    facts = {"bench": "naive", "parties": len(tables), "rows": rows, "batch": batch}
    requests = {(0, m): WarmUp() for m in range(len(tables))}
    ways: dict[str, Callable[[], object]] = {}
    for kind in ("stacked", "loop"):
        engine = ours(method, tables, kind, device)
        engine.exchange(requests)  # start-up apart, for us and for them
        ways[kind] = partial(engine.exchange, requests)
    own = [torch.cat([t.pool, t.aligned]) for t in tables]
    epoch(own[0][: 2 * batch], batch, 0)
    ways |= {
        f"DataLoader, {count} workers": partial(loaders, own, batch, count) for count in workers
    }
    for _ in range(rounds):
        for how, work in ways.items():
            before = processor_seconds()
            seconds = clock(work, "cuda" if device == "cuda" else "wall")
            yield {
                **facts,
                "how": how,
                "seconds": seconds,
                "processor": processor_seconds() - before,
            }


def loaders(own: Sequence[Tensor], batch: int, workers: int) -> None:
    """An epoch of every party with DataLoaders."""
    threads = torch.get_num_threads()
    # with workers more threads only get in their way
    torch.set_num_threads(threads if not workers else 1)
    for rows in own:
        epoch(rows, batch, workers)
    torch.set_num_threads(threads)


def spent(line: Line) -> str:
    return f"{line['processor']:.1f}" if "processor" in line else "not measured"


def render(lines: Sequence[Line]) -> str:
    """The shortest time of each way of doing it."""
    ways = dict.fromkeys(x["how"] for x in lines)
    shortest = {
        how: min((x for x in lines if x["how"] == how), key=lambda x: x["seconds"]) for how in ways
    }
    best = min(shortest[how]["seconds"] for how in ("stacked", "loop"))
    cells = [[how, f"{x['seconds']:.2f}", f"{x['seconds'] / best:.1f}", spent(x)]
             for how, x in shortest.items()]  # fmt: skip
    return table(
        ["one warm-up epoch", "seconds", "times our faster engine", "processor seconds"], cells
    )
