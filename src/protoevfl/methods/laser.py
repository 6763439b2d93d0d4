"""LASER-VFL (arXiv 2410.22564): one model that predicts with any subset of the parties.

    L = sum over k, j of  a_j CE( head_k( mean_{m in S_kj} z_m ), y ),
                          S_kj a random set of j parties that holds k

Each party has an extractor and a fusion head that takes the mean of the blocks present. For every
row, head and size one subset is drawn; a_j = C(M-1, j-1) / j makes every non-empty subset count the
same (its loss the mean over its members), `weights = "sizes"` every size. A subset predicts by the
mean of its members' heads. With every label of the active party, rows that only it has and rows it
shares with some take part as well, with the parties that have them; batches are of one kind of row,
and S_kj holds parties that have the row. Departs: the heads sit with the label owner, who alone
holds labels here; bytes are those of split learning. An epoch has `own_batches` batches of each
other kind of row to one of shared rows, which are not lost among thousands then.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from protoevfl.core import random as rnd
from protoevfl.core.losses import soft_cross_entropy
from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.head import HeadNet, HeadSettings
from protoevfl.method import Talk
from protoevfl.methods.labelled import rate_offsets
from protoevfl.methods.split import Batch, SplitLearning
from protoevfl.models import inputs


@dataclass(frozen=True)
class Laser(SplitLearning):
    """Split learning with a fusion head a party and sampled subsets."""

    name: ClassVar[str] = "laser"
    weights: str = "subsets"  # or "sizes"
    # with every label: batches of each other kind of row to one of rows that all parties have
    own_batches: int = 4

    def train(self, owner: LabelOwner) -> Talk:
        if owner.own is not None and self.decay:
            raise UserError(
                "laser.decay counts the steps of shared rows; leave it off with labels of other "
                "rows"
            )
        yield from self.fine_tune(owner)

    def plan(self, owner: LabelOwner, epoch: int) -> Iterator[Batch]:
        kinds = row_kinds(owner) if owner.own is not None else []
        orders = [
            rnd.permutation(owner.keys(f"kind {i}"), "epoch", epoch, len(k))
            for i, k in enumerate(kinds)
        ]
        for step, shared in enumerate(super().plan(owner, epoch)):
            yield shared
            for kind, (order,) in zip(kinds, orders, strict=True):
                for turn in range(self.own_batches):
                    start = (step * self.own_batches + turn) * self.batch
                    places = torch.arange(
                        start, start + min(self.batch, len(kind)), device=order.device
                    )
                    yield kind.batch(order[places % len(kind)])

    def head(self, keys: Tensor, parties: int, width: int, classes: int) -> nn.Module:
        """models x M heads, each on one block of width d."""
        many = torch.stack([rnd.derive(keys, "fusion", m) for m in range(parties)], 1).flatten()
        settings = HeadSettings(hidden=self.hidden, dropout=self.dropout, gate=False, adaptor=False)
        return HeadNet(many, 1, width, classes, settings)

    def loss(
        self, head: nn.Module, z: Tensor, targets: Tensor, step: rnd.Counter, batch: Batch
    ) -> Tensor:
        assert isinstance(head, HeadNet)
        e, parties, rows = z.shape[:3]
        here = torch.tensor([m in batch.rows for m in range(parties)], device=z.device)
        chosen = subsets(head.keys, step, parties, rows, here)  # (E*M, size, B, M)
        mean = fused(z, chosen.view(e, parties, parties, rows, parties))  # (E, head, size, B, d)
        x = mean.flatten(0, 1).flatten(1, 2)[:, None]  # (E*M, 1, size*B, d)
        logits = head(x, step=step).view(e, parties, parties, rows, -1)
        if batch.offsets is not None:
            logits = logits + batch.offsets
        # (E, head, size)
        losses = soft_cross_entropy(logits, targets[:, None, None].expand_as(logits))
        sizes = self.size_weights(len(batch.rows)).to(losses)
        return (losses[..., : len(sizes)] * sizes).sum(-1)[:, here].mean(-1)

    def size_weights(self, parties: int) -> Tensor:
        """a_j for j = 1..M, summing to one."""
        counts = [math.comb(parties - 1, j - 1) / j for j in range(1, parties + 1)]
        weights = torch.tensor(counts if self.weights == "subsets" else [1.0] * parties)
        return weights / weights.sum()

    def probabilities(self, head: nn.Module, z: Tensor, here: Tensor) -> Tensor:
        """The heads of the parties present, each on the mean of the blocks present, averaged."""
        e, parties = z.shape[:2]
        mean = (z * here[:, None, None]).sum(1) / here.sum()  # (E, B, d)
        x = mean.repeat_interleave(parties, 0)[:, None]  # (E*M, 1, B, d)
        p = head(x).softmax(-1).view(e, parties, z.shape[2], -1)
        out: Tensor = (p * here[:, None, None]).sum(1).mean(0) / here.sum()
        return out


@dataclass(frozen=True)
class Kind:
    """Labelled rows of the active party that the same others have."""

    rows: Tensor  # (n, columns) as the active party has them
    labels: Tensor  # (n,)
    numbers: Mapping[int, Tensor]  # by other party that has them: (n,) what the row is called there
    offsets: Tensor  # (Z,)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor) -> Batch:
        others = {m: numbers[places] for m, numbers in self.numbers.items()}
        return Batch(self.labels[places], {0: self.rows[places], **others}, self.offsets)


def row_kinds(owner: LabelOwner) -> list[Kind]:
    """The labelled rows that not all parties have, by the set of those who have them."""
    assert owner.own is not None
    own, known = owner.own, len(owner.labels)
    shared = torch.zeros(
        len(owner.parties), len(own.labels) - known, dtype=torch.bool, device=owner.device
    )
    shared[0] = True
    if owner.further is not None:
        shared[:, : owner.further.shared.shape[1]] = owner.further.shared
    # a party's further rows stand in this order, after those of all parties
    called = known + shared.cumsum(1) - 1
    labels = own.labels[known:]
    rows = inputs(own.rows[known:]).flatten(1)
    kinds = []
    for pattern in torch.unique(shared, dim=1).T:
        places = ((shared == pattern[:, None]).all(0) & (labels >= 0)).nonzero()[:, 0]
        if len(places):
            others = {m: called[m, places] for m in owner.parties[1:] if pattern[m]}
            offsets = rate_offsets(labels[places], owner.labels, owner.classes)
            kinds.append(Kind(rows[places], labels[places], others, offsets))
    return kinds


def subsets(
    keys: Tensor, step: rnd.Counter, parties: int, rows: int, here: Tensor | None = None
) -> Tensor:
    """Masks (E*M, size, B, M): for each head k, size j and row a random set of j parties that holds
    k.

    The other parties are ranked at random, those that are not `here` (M,) last; k and the first j -
    1 of them are in.
    """
    score = rnd.uniform(keys, "subset", step, (parties, rows, parties))  # (E*M, size, B, M)
    own = torch.arange(len(keys), device=keys.device) % parties  # (E*M,)
    is_head = torch.arange(parties, device=keys.device) == own[:, None]  # (E*M, M)
    if here is not None:
        score = score.masked_fill(~here, 2.0)
    rank = score.masked_fill(is_head[:, None, None], -1.0).argsort(-1).argsort(-1)  # 0 is k itself
    return rank <= torch.arange(parties, device=keys.device)[:, None, None]


def fused(z: Tensor, chosen: Tensor) -> Tensor:
    """Mean of the chosen blocks: z (E, M, B, d), chosen (E, head, size, B, M) -> (E, head, size, B,
    d)."""
    share = chosen.to(z) / chosen.sum(-1, keepdim=True)
    return torch.einsum("ehsbm,embd->ehsbd", share, z)
