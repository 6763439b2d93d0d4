"""FedCVT (Kang et al. 2022): unaligned rows are completed by attention, and labelled where three
heads agree.

    L = CE of joint, guest and host heads on aligned rows  +  the same on pool rows with agreed
    pseudo-labels
        + similar |c_a - c_b|^2 + apart cos^2(u, c) + guess |estimate - truth|^2

Two parties in the source; for more, every other party forms a pair with the active party and the
pairs' joint heads are averaged (our extension). Per batch a party sends representations of the
aligned rows and of some rows of its pool, and receives the gradients at both: (B + pool) 2d 4 bytes
each way per step and model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.fit import adamw
from protoevfl.head import ThreeHeads, mixup
from protoevfl.messages import (
    BackwardMixed,
    Done,
    Embed,
    Embeddings,
    ForwardMixed,
    Message,
    MixedEmbeddings,
)
from protoevfl.method import PREDICTION, Asking, Exchanges, Report, Talk
from protoevfl.methods import cross_view as cv
from protoevfl.methods.ensemble import Ensemble, blocks, flat, member_keys
from protoevfl.methods.labelled import pre_train
from protoevfl.methods.split import SplitLearning
from protoevfl.methods.ss_vfl import PlainHead
from protoevfl.methods.steps import one_view, set_rate, tracked
from protoevfl.methods.warmup import gather
from protoevfl.models import Extractor, extractor, inputs


class UniqueCommon(nn.Module):
    """r = [u, c]: two extractors side by side."""

    def __init__(self, unique: Extractor, common: Extractor) -> None:
        super().__init__()
        self.unique, self.common = unique, common

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.unique(x), self.common(x)], -1)


@dataclass(frozen=True)
class FedCVT(SplitLearning):
    """Split learning with completed and pseudo-labelled pool rows."""

    name: ClassVar[str] = "fedcvt"
    exchanges: ClassVar[Exchanges] = (
        (ForwardMixed, MixedEmbeddings),
        (BackwardMixed, Done),
        *PREDICTION,
    )
    pool_batch: int = 64  # pool rows a step and party
    thresholds: tuple[float, float, float] = (0.8, 0.7, 0.7)  # joint, guest, host
    unlabelled: float = 0.5  # weight of the pseudo-labelled rows
    similar: float = 0.1
    apart: float = 0.1
    guess: float = 0.1

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        many = member_keys(keys, self.models)
        encoders = [extractor(shape, rnd.derive(many, part)) for part in ("unique", "common")]
        return Ensemble(UniqueCommon(*encoders), self.models)

    # ------------------------------------------------------------ party side

    def answer(self, cohort: Cohort, request: Message) -> Message:
        match request:
            case ForwardMixed(rows=rows, step=step, pool=count):
                with torch.no_grad():
                    return MixedEmbeddings(
                        *self.forward_mixed(cohort, rows, count, step, track=False)
                    )
            case BackwardMixed():
                return self.backward_mixed(cohort, request)
        return super().answer(cohort, request)

    def forward_mixed(
        self, cohort: Cohort, rows: Tensor, count: int, step: int, track: bool
    ) -> tuple[Tensor, Tensor]:
        """Representations of aligned rows and of `count` pool rows, which the party draws by
        step."""
        net, pool = tracked(cohort.net, track), cohort.rows.pool
        # (G, count)
        drawn = (rnd.uniform(cohort.keys, "pool", step, (count,)) * pool.shape[1]).long()
        x = inputs(torch.cat([gather(cohort.rows.aligned, rows), gather(pool, drawn)], 1))
        if self.augment:
            x = one_view(cohort, x, step, self.augment)
        z: Tensor = net(x)
        return z[:, : rows.shape[1]], z[:, rows.shape[1] :]

    def backward_mixed(self, cohort: Cohort, request: BackwardMixed) -> Message:
        """Recomputes the forward pass, as split learning does."""
        optimizer = cohort.optimizer(
            "split", lambda: adamw(cohort.net.parameters(), self.lr, self.weight_decay)
        )
        set_rate(optimizer, self.lr * self.rate(request.step, cohort.rows.aligned.shape[1]))
        z = self.forward_mixed(
            cohort, request.rows, request.pool.shape[1], request.step, track=True
        )
        optimizer.zero_grad()
        torch.autograd.backward(z, (request.gradients, request.pool))
        optimizer.step()
        return Done()

    # ------------------------------------------------------------ owner side

    def train(self, owner: LabelOwner) -> Talk:
        parties = owner.parties
        keys = owner.keys("head", self.models)
        step = 0
        n = len(owner.labels)
        y = F.one_hot(owner.labels, owner.classes).float()
        heads: ThreeHeads | None = None
        if owner.own is not None:
            yield from pre_train(owner)
        for epoch in range(self.epochs):
            for rows in self.batches(owner, epoch):
                replies = yield {m: ForwardMixed(step, self.pool_batch, rows) for m in parties}
                z, v = (
                    x.to(owner.device).requires_grad_() for x in self.mixed_blocks(replies, parties)
                )
                if heads is None:
                    settings = PlainHead(hidden=self.hidden, dropout=self.dropout)
                    heads = ThreeHeads(keys, len(parties) - 1, z.shape[-1], owner.classes, settings)
                    optimizer = adamw(heads.parameters(), self.head_lr, self.weight_decay)
                set_rate(optimizer, self.head_lr * self.rate(step, n))
                loss, used = self.objective(
                    heads, z, v, y[rows].expand(self.models, -1, -1), keys, step
                )
                optimizer.zero_grad()
                loss.sum().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                assert z.grad is not None
                assert v.grad is not None
                back, pool = flat(z.grad), flat(v.grad)
                yield {
                    m: BackwardMixed(step, rows, back[i], pool[i]) for i, m in enumerate(parties)
                }
                step += 1
            values = {"loss": loss.detach().mean(), "pseudo_labelled": used}
            yield Report("cross-view training", epoch + 1, self.epochs, values)
        owner.head = heads

    def mixed_blocks(
        self, replies: Mapping[int, Message], parties: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        """(E, M, B, 2d) of aligned and (E, M, pool, 2d) of pool rows."""
        good = {m: r for m, r in replies.items() if isinstance(r, MixedEmbeddings)}
        if len(good) != len(parties):
            raise UserError("a party answered with something else than FedCVT's representations")
        aligned = {m: Embeddings(r.values) for m, r in good.items()}
        pool = {m: Embeddings(r.pool) for m, r in good.items()}
        return blocks(aligned, parties, self.models), blocks(pool, parties, self.models)

    def objective(
        self, heads: ThreeHeads, z: Tensor, v: Tensor, targets: Tensor, keys: Tensor, step: int
    ) -> tuple[Tensor, Tensor]:
        """The loss (E,) and the share of pool rows that got a label."""
        pairs = z.shape[1] - 1
        x, t = mixup(z, targets, keys, step, self.mixup) if self.mixup else (z, targets)
        loss = cv.supervised(heads(x[:, :1].expand(-1, pairs, -1, -1), x[:, 1:], step), t)
        a, b = z[:, :1].expand(-1, pairs, -1, -1), z[:, 1:]  # (E, P, B, 2d)
        loss = (
            loss
            + self.similar * cv.alike(a.chunk(2, -1)[1], b.chunk(2, -1)[1])
            + self.apart * cv.apart(z)
        )
        guesses = cv.alike(cv.estimate(a, a, b, True), b) + cv.alike(cv.estimate(b, b, a, True), a)
        loss = loss + self.guess * guesses
        active, passive = v[:, :1].expand(-1, pairs, -1, -1), v[:, 1:]  # (E, P, pool, 2d)
        # (E, P, 2 pool, 2d): r_a true, then estimated
        left = torch.cat([active, cv.estimate(passive, b, a)], 2)
        right = torch.cat([cv.estimate(active, a, b), passive], 2)
        with torch.no_grad():
            label, counts = cv.agreement(heads(left, right), self.thresholds)
        unlabelled = cv.pseudo_labelled(heads(left, right, step), label, counts)
        return loss + self.unlabelled * unlabelled, counts.float().mean()

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        """Pairs present: their joint heads; the active party alone: the guest head; without it: the
        host heads."""
        replies = yield {m: Embed("query") for m in owner.parties if m in present}
        if not replies or not isinstance(owner.head, ThreeHeads):
            raise UserError(
                f"prediction needs a trained head and at least one of the parties {owner.parties}"
            )
        embeddings = next(iter(replies.values()))
        assert isinstance(embeddings, Embeddings)
        nothing = Embeddings(torch.zeros_like(embeddings.values))
        z = blocks(
            {m: replies.get(m, nothing) for m in owner.parties}, owner.parties, self.models
        ).to(owner.device)
        pairs = [p for p, m in enumerate(owner.parties[1:]) if m in replies]
        head = 1 if not pairs else 0 if owner.parties[0] in replies else 2
        parts = []
        with torch.no_grad():
            for part in torch.split(z, 4096, 2):
                logits = owner.head(part[:, :1].expand(-1, z.shape[1] - 1, -1, -1), part[:, 1:])[
                    head
                ]
                parts.append(logits[:, pairs or [0]].softmax(-1).mean((0, 1)))
        return torch.cat(parts)
