"""The label owner's classifier: residual adaptors, a gate over parties, a small perceptron; E of
them as one model.

    f^_m = f_m + A_m f_m      g = softmax_m(w_m . f^_m)      logits = MLP( concat_m( M g_m f^_m ) )

Every tensor has a leading ensemble axis E. Embeddings f are (E, M, B, d); a party that is missing
leaves the softmax and its block is zero. `train_head` trains on fixed embeddings with mixup, noise,
party dropout and, where asked, rows drawn for classes that lack labels.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protoevfl.core import gating
from protoevfl.core import random as rnd
from protoevfl.core.losses import soft_cross_entropy
from protoevfl.fit import fit
from protoevfl.method import Work
from protoevfl.models import Linear


@dataclass(frozen=True)
class HeadSettings:
    """How the head is trained; the same fields for every method that trains one on fixed
    embeddings."""

    members: int = 5  # heads averaged
    hidden: int = 128
    dropout: float = 0.2
    gate: bool = True
    adaptor: bool = True
    rank: int = 16  # of the adaptor's update; 0: full (the paper's)
    epochs: int = 100
    epochs_per_class: float = 0.0  # as many epochs as classes ask for, where that is more
    batch: int = 64
    lr: float = 1e-3
    weight_decay: float = 1e-2
    mixup: float = 1.0  # Beta(a, a); 0 turns it off
    noise: float = 0.3  # Gaussian, added to embeddings
    party_dropout: float = 0.0
    optimizer: str = "adamw"
    decay: bool = True  # cosine learning rate
    balanced: bool = False  # weigh classes equally in the loss


class HeadNet(nn.Module):
    """E heads on M parties' embeddings of width d."""

    def __init__(
        self, keys: Tensor, parties: int, width: int, classes: int, settings: HeadSettings
    ) -> None:
        super().__init__()
        e, s = len(keys), settings
        self.keys, self.settings = keys, settings
        rank = min(s.rank, width) or width
        zero = torch.zeros(e, parties, rank, width, device=keys.device)
        self.adaptor = nn.Parameter(zero) if s.adaptor else None
        narrow = (2 * rnd.uniform(keys, "adaptor", 0, (parties, width, rank)) - 1) / width**0.5
        self.narrow = nn.Parameter(narrow) if s.adaptor and rank < width else None
        self.gate = (
            nn.Parameter(torch.zeros(e, parties, width, device=keys.device)) if s.gate else None
        )
        sizes = (
            [parties * width, s.hidden, s.hidden, classes]
            if s.hidden
            else [parties * width, classes]
        )
        self.layers = nn.ModuleList(
            Linear(keys, f"head{n}", i, o)
            for n, (i, o) in enumerate(zip(sizes, sizes[1:], strict=False))
        )

    def adapt(self, f: Tensor) -> Tensor:
        """f^ = f + A f, per party."""
        if self.adaptor is None:
            return f
        return f + (f if self.narrow is None else f @ self.narrow) @ self.adaptor

    def gates(self, f: Tensor, present: Tensor | None) -> Tensor:
        """Weights (E, M, B) of the parties present; equal ones without a gate."""
        if self.gate is not None:
            return gating.gate(f, self.gate, present)
        here = (
            f.new_ones(f.shape[:-1])
            if present is None
            else _spread(present).to(f).expand(f.shape[:-1])
        )
        return here / f.shape[-3]

    def forward(
        self, f: Tensor, present: Tensor | None = None, step: rnd.Counter | None = None
    ) -> Tensor:
        """Logits (E, B, Z); dropout only where a step is given."""
        if present is not None:
            # what a missing party holds must not be used
            f = torch.where(_spread(present).unsqueeze(-1), f, 0.0)
        f = self.adapt(f)
        x = gating.aggregate(f, self.gates(f, present))  # (E, B, M*d)
        for n, layer in enumerate(self.layers):
            if n:
                x = F.relu(x)
                if step is not None and self.settings.dropout:
                    kept = (
                        rnd.uniform(self.keys, f"dropout{n}", step, tuple(x.shape[1:]))
                        >= self.settings.dropout
                    )
                    x = x * kept / (1 - self.settings.dropout)
            x = layer(x)
        return x


class ThreeHeads(nn.Module):
    """FedCVT's joint, guest and host heads of E models and P pairs of parties (methods/cross_view.py);
    the guest head is one for all pairs."""

    def __init__(
        self, keys: Tensor, pairs: int, width: int, classes: int, settings: HeadSettings
    ) -> None:
        super().__init__()
        many = torch.stack([rnd.derive(keys, "pair", p) for p in range(pairs)], 1).flatten()
        self.joint = HeadNet(rnd.derive(many, "joint"), 2, width, classes, settings)
        self.guest = HeadNet(rnd.derive(keys, "guest"), 1, width, classes, settings)
        self.host = HeadNet(rnd.derive(many, "host"), 1, width, classes, settings)

    def forward(self, a: Tensor, b: Tensor, step: rnd.Counter | None = None) -> Tensor:
        """Logits (3, E, P, B, Z) of joint, guest and host from r_a, r_b (E, P, B, w)."""
        e, pairs, rows = a.shape[:3]
        both = torch.stack([a, b], 2).flatten(0, 1)  # (E*P, 2, B, w)
        joint = self.joint(both, step=step)
        guest = self.guest(a.flatten(1, 2)[:, None], step=step)  # (E, P*B, Z)
        host = self.host(b.flatten(0, 1)[:, None], step=step)
        return torch.stack([x.view(e, pairs, rows, -1) for x in (joint, guest, host)])


def _spread(present: Tensor) -> Tensor:
    """A mask (M,) over parties as (M, 1); a mask (..., M, B) stays."""
    return present.unsqueeze(-1) if present.dim() == 1 else present


def _partners(keys: Tensor, step: rnd.Counter, rows: int) -> Tensor:
    """The row (E, B) each row of a batch is mixed with."""
    return rnd.permutation(keys, "partner", step, rows)


def mixup(
    f: Tensor, y: Tensor, keys: Tensor, step: rnd.Counter, alpha: float
) -> tuple[Tensor, Tensor]:
    """lam (f, y) + (1 - lam) (f, y)[other row]; f (E, M, B, d), y (E, B, Z); one lam a member and
    step."""
    lam = rnd.beta_symmetric(keys, "mixup", step, (1,), alpha)  # (E, 1)
    other = _partners(keys, step, y.shape[1])
    f2 = f.gather(2, other[:, None, :, None].expand_as(f))
    y2 = y.gather(1, other[:, :, None].expand_as(y))
    return torch.lerp(f2, f, lam[:, :, None, None]), torch.lerp(y2, y, lam[:, :, None])


def _present_in_both(present: Tensor, other: Tensor) -> Tensor:
    """The parties (E, M, B) present in a row and in its partner; a row that would lose all keeps
    its own."""
    both = present & present.gather(2, other[:, None].expand_as(present))
    return torch.where(both.any(1, keepdim=True), both, present)


def _drop_parties(keys: Tensor, step: rnd.Counter, parties: int, rows: int, rate: float) -> Tensor:
    """A mask (E, M, B): each party missing with probability `rate`; a row that would lose all keeps
    all."""
    here = rnd.uniform(keys, "party-dropout", step, (parties, rows)) >= rate
    return here | ~here.any(1, keepdim=True)


@dataclass(frozen=True)
class Drawn:
    """Rows to draw each epoch for a class from given embeddings f (M, n, d), by their weights
    (n,)."""

    label: int
    rows: int
    f: Tensor
    weights: Tensor


class _Draws:
    """The same class's rows of several runs, drawn for the heads of each."""

    def __init__(self, drawn: Sequence[Drawn], run: Tensor) -> None:
        self.label = drawn[0].label
        self.rows = drawn[0].rows
        self.run = run  # (E,) the run each head belongs to
        self.f = torch.stack([one.f for one in drawn], 1)  # (M, S, n, d)
        weights = torch.stack([one.weights for one in drawn])  # (S, n)
        # cumulative shares (E, n), in which a uniform draw finds its row
        self.edges = (weights.cumsum(1) / weights.sum(1, keepdim=True))[run].contiguous()

    def draw(self, keys: Tensor, step: rnd.Counter, rows: int) -> Tensor:
        """So many rows (E, M, rows, d)."""
        u = rnd.uniform(keys, f"drawn{self.label}", step, (rows,))  # (E, rows)
        place = torch.searchsorted(self.edges, u).clamp(max=self.f.shape[2] - 1)
        return self.f[:, self.run[:, None], place].movedim(0, 1)


@dataclass(frozen=True)
class HeadTask(Work):
    """E heads to train on embeddings f (M, N, d) with labels (N,).

    A method yields it and receives the `HeadNet`; the heads of several runs are trained together.
    """

    keys: Tensor
    f: Tensor
    labels: Tensor
    classes: int
    settings: HeadSettings
    extras: Sequence[Drawn] = ()

    def shape(self) -> Hashable:
        """Heads of tasks with the same shape can be one model."""
        drawn = tuple((one.label, one.rows, one.f.shape) for one in self.extras)
        return len(self.keys), self.f.shape, self.classes, self.settings, drawn

    @classmethod
    def together(cls, works: Sequence[Work]) -> list[HeadNet]:
        """One model per shape on a GPU, where small steps wait for their kernels; on a CPU one task
        after the other."""
        tasks = [work for work in works if isinstance(work, HeadTask)]
        alike: dict[Hashable, list[int]] = {}
        for i, task in enumerate(tasks):
            key = (task.shape(), None if task.f.is_cuda else i)
            alike.setdefault(key, []).append(i)
        heads: dict[int, HeadNet] = {}
        for places in alike.values():
            heads |= zip(places, train_heads([tasks[i] for i in places]), strict=True)
        return [heads[i] for i in range(len(tasks))]


def train_heads(tasks: Sequence[HeadTask]) -> list[HeadNet]:
    """The heads of tasks of one shape, trained as one model, one `HeadNet` per task."""
    net = _train(tasks)
    if len(tasks) == 1:
        return [net]
    return [_members(net, task, i) for i, task in enumerate(tasks)]


def _members(together: HeadNet, task: HeadTask, place: int) -> HeadNet:
    """The heads of the task at this place, as a model of their own."""
    parties, _, width = task.f.shape
    net = HeadNet(task.keys, parties, width, task.classes, task.settings)
    members = slice(place * len(task.keys), (place + 1) * len(task.keys))
    net.load_state_dict({name: x[members] for name, x in together.state_dict().items()})
    return net


def train_head(
    keys: Tensor,
    f: Tensor,
    labels: Tensor,
    classes: int,
    settings: HeadSettings,
    extras: Sequence[Drawn] = (),
    start: HeadNet | None = None,
) -> HeadNet:
    """E heads on embeddings f (M, N, d) with labels (N,); `start` is a head to go on with."""
    return _train([HeadTask(keys, f, labels, classes, settings, extras)], start)


def _train(tasks: Sequence[HeadTask], start: HeadNet | None = None) -> HeadNet:
    """The heads of S tasks of one shape as one model of E = S * members heads."""
    first = tasks[0]
    s = first.settings
    parties, n, width = first.f.shape
    keys = torch.cat([task.keys for task in tasks])
    run = torch.arange(len(tasks), device=keys.device).repeat_interleave(len(first.keys))  # (E,)
    net = start or HeadNet(keys, parties, width, first.classes, s)
    f = torch.stack([task.f for task in tasks], 1)  # (M, S, N, d)
    y = F.one_hot(torch.stack([task.labels for task in tasks]), first.classes).float()  # (S, N, Z)
    extras = [_Draws(drawn, run) for drawn in zip(*(task.extras for task in tasks), strict=True)]
    for extra in extras:
        target = torch.eye(first.classes, device=y.device)[extra.label]
        y = torch.cat([y, target.expand(len(tasks), extra.rows, -1)], 1)
    rows = y.shape[1]
    weight = torch.ones(len(keys), rows, device=f.device)  # (E, rows)
    if s.balanced:
        counts = y.sum(1).clamp(min=1)  # (S, Z)
        weight = (y @ (1 / counts)[..., None])[run, :, 0]

    def loss(index: Tensor, step: rnd.Counter) -> Tensor:
        x = f[:, run[:, None], index.clamp(max=n - 1)].movedim(0, 1)  # (E, M, B, d)
        present = (
            _drop_parties(keys, step, parties, index.shape[1], s.party_dropout)
            if s.party_dropout
            else None
        )
        begin = n
        for extra in extras:
            drawn = (index >= begin) & (index < begin + extra.rows)  # (E, B)
            x = torch.where(drawn[:, None, :, None], extra.draw(keys, step, index.shape[1]), x)
            begin += extra.rows
        t, w = y[run[:, None], index], weight.gather(1, index)
        if s.noise:
            x = x + s.noise * rnd.normal(keys, "noise", step, tuple(x.shape[1:]))
        if s.mixup:
            x, both = mixup(x, torch.cat([t, w[..., None]], -1), keys, step, s.mixup)
            if present is not None:
                present = _present_in_both(present, _partners(keys, step, index.shape[1]))
            t, w = both[..., :-1], both[..., -1]
        return soft_cross_entropy(net(x, present, step), t, w)

    fit(
        loss,
        net.parameters(),
        keys,
        rows,
        epochs=max(s.epochs, round(s.epochs_per_class * y.shape[-1])),
        batch=s.batch,
        lr=s.lr,
        weight_decay=s.weight_decay,
        purpose="head",
        drop_last=False,
        optimizer=s.optimizer,
        decay=s.decay,
    )
    return net


@torch.no_grad()
def probabilities(
    net: HeadNet, f: Tensor, present: Tensor | None = None, batch: int = 4096
) -> Tensor:
    """Mean class probabilities (N, Z) of the ensemble on f (M, N, d)."""
    parts = []
    for start in range(0, max(1, f.shape[1]), batch):
        x = f[:, start : start + batch].expand(len(net.keys), -1, -1, -1)
        here = (
            present if present is None or present.dim() == 1 else present[:, start : start + batch]
        )
        parts.append(net(x, here).softmax(-1))
    return torch.cat(parts, 1).mean(0)
