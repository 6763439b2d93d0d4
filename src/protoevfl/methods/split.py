"""Split learning (Vanilla VFL): embeddings go up, gradients come down, batch by batch.

    z_m = E_m(x_m)      L = cross-entropy( head(concat_m z_m), y )      party m receives dL/dz_m

Two messages per batch and passive party, N_a d 4 bytes each way per epoch and model. Gradients are
derived from labels row by row, which is why this family leaks labels (docs/privacy.md). `models`
extractors a party are trained side by side and their heads' probabilities averaged; mixup acts on
the embeddings at the owner. `SplitLearning` is the talk that Local, SS-VFL-C, FedHSSL and LASER-VFL
share; each of them changes a few of its functions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protoevfl.core import random as rnd
from protoevfl.core.losses import soft_cross_entropy
from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.fit import adamw, cosine
from protoevfl.head import HeadNet, HeadSettings, mixup
from protoevfl.messages import (
    BackwardBatch,
    BackwardOwn,
    Done,
    Embed,
    Embeddings,
    ForwardBatch,
    ForwardOwn,
    LearnLabels,
    Message,
    values,
)
from protoevfl.method import PREDICTION, Asking, Exchanges, Replies, Report, Talk
from protoevfl.methods.ensemble import Ensemble, blocks, flat, member_keys
from protoevfl.methods.labelled import LabelledSettings, learn_labels, pre_train
from protoevfl.methods.steps import calibrate, one_view, per_epoch, set_rate, tracked
from protoevfl.methods.warmup import gather
from protoevfl.models import embed, extractor, inputs


@dataclass(frozen=True)
class Batch:
    """Rows of one step: the parties that have them, and how each of them is told which rows are
    meant."""

    labels: Tensor  # (B,)
    # by party: row numbers (B,), or to the active party its own rows (B, columns)
    rows: Mapping[int, Tensor]
    # (Z,) added to the logits, where the rows have class rates of their own
    offsets: Tensor | None = None

    def forward(self, step: int) -> dict[int, Message]:
        return {
            m: ForwardBatch(step, r) if r.dim() == 1 else ForwardOwn(step, r)
            for m, r in self.rows.items()
        }

    def backward(self, step: int, gradients: Mapping[int, Tensor]) -> dict[int, Message]:
        return {
            m: BackwardBatch(step, r, gradients[m])
            if r.dim() == 1
            else BackwardOwn(step, r, gradients[m])
            for m, r in self.rows.items()
        }


def shared_rows(cohort: Cohort) -> Tensor:
    """All rows (G, n, ...) the active party may ask for by number: those of all parties, then the
    further ones."""
    further = cohort.rows.further
    if further is None or not further.shape[1]:
        return cohort.rows.aligned
    return torch.cat([cohort.rows.aligned, further], 1)


def _padded_blocks(replies: Replies, parties: tuple[int, ...], models: int) -> Tensor:
    """(E, M, B, d) of all parties; zeros for those that did not answer."""
    nothing = Embeddings(torch.zeros_like(values(next(iter(replies.values())))))
    return blocks({m: replies.get(m, nothing) for m in parties}, parties, models)


@dataclass(frozen=True)
class SplitLearning:
    """The talk of split learning; the fields are what the search of `protoevfl tune` moves."""

    exchanges: ClassVar[Exchanges] = (
        (ForwardBatch, Embeddings),
        (BackwardBatch, Done),
        *PREDICTION,
    )
    models: int = 3  # extractors (and heads) averaged
    epochs: int = 60
    batch: int = 64
    lr: float = 1e-3  # of the extractors
    head_lr: float = 1e-3
    weight_decay: float = 1e-2
    decay: bool = False  # cosine decay of both rates
    mixup: float = 1.0  # Beta(a, a); 0 turns it off
    dropout: float = 0.2
    hidden: int = 128  # of the head; 0 is a linear head
    # strength of image views, or share of table columns replaced, while training
    augment: float = 0.0
    labelled: LabelledSettings = field(default_factory=LabelledSettings)

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        """`models` extractors for each of G parties."""
        return Ensemble(extractor(shape, member_keys(keys, self.models)), self.models)

    # ------------------------------------------------------------ party side

    def answer(self, cohort: Cohort, request: Message) -> Message:
        match request:
            case ForwardBatch(rows=rows, step=step) | ForwardOwn(rows=rows, step=step):
                with torch.no_grad():
                    return Embeddings(self.forward(cohort, rows, step, track=False))
            case BackwardBatch() | BackwardOwn():
                return self.backward(cohort, request)
            case Embed(rows=which):
                net = calibrate(self.encoder(cohort), cohort.rows.aligned)
                return Embeddings(embed(net, getattr(cohort.rows, which)))
            case LearnLabels():
                assert isinstance(cohort.net, Ensemble)
                learn_labels(cohort, cohort.net, request, self.labelled)
                return Done()
        raise NotImplementedError(type(request).__name__)

    def encoder(self, cohort: Cohort) -> nn.Module:
        """The part of the party's network that split learning trains."""
        return cohort.net

    def forward(self, cohort: Cohort, rows: Tensor, step: int, track: bool) -> Tensor:
        """Embeddings (G, B, models*d) of a batch; views are drawn by step, so that both passes see
        the same."""
        net = tracked(self.encoder(cohort), track)
        if rows.dim() == 2:  # numbers of shared rows
            x = inputs(gather(shared_rows(cohort), rows))
        else:
            x = rows.view(*rows.shape[:2], *cohort.rows.pool.shape[2:])
        if self.augment:
            x = one_view(cohort, x, step, self.augment)
        out: Tensor = net(x)
        return out

    def backward(self, cohort: Cohort, request: BackwardBatch | BackwardOwn) -> Message:
        """Recomputes the forward pass, so that a party can be rebuilt between any two messages."""
        net = self.encoder(cohort)
        rate = self.lr * self.rate(request.step, cohort.rows.aligned.shape[1])
        optimizer = cohort.optimizer(
            "split", lambda: adamw(net.parameters(), self.lr, self.weight_decay)
        )
        set_rate(optimizer, rate)
        z = self.forward(cohort, request.rows, request.step, track=True)
        optimizer.zero_grad()
        z.backward(request.gradients)  # type: ignore[no-untyped-call]
        optimizer.step()
        return Done()

    # ------------------------------------------------------------ owner side

    def train(self, owner: LabelOwner) -> Talk:
        if owner.own is not None:
            yield from pre_train(owner)
        yield from self.fine_tune(owner)

    def fine_tune(self, owner: LabelOwner) -> Talk:
        """The epochs of split learning; leaves the trained head with the owner."""
        parties, step = self.members(owner), 0
        keys, n = owner.keys("head", self.models), len(owner.labels)
        head: nn.Module | None = None
        for epoch in range(self.epochs):
            for batch in self.plan(owner, epoch):
                replies = yield batch.forward(step)
                # (E, M, B, d)
                z = _padded_blocks(replies, parties, self.models).to(owner.device).requires_grad_()
                if head is None:
                    head = self.head(keys, len(parties), z.shape[-1], owner.classes)
                    optimizer = adamw(head.parameters(), self.head_lr, self.weight_decay)
                set_rate(optimizer, self.head_lr * self.rate(step, n))
                y = F.one_hot(batch.labels, owner.classes).float()
                x, t = z, y.expand(self.models, -1, -1)
                if self.mixup:
                    x, t = mixup(x, t, keys, step, self.mixup)
                loss = self.loss(head, x, t, step, batch)  # (E,)
                optimizer.zero_grad()
                loss.sum().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                assert z.grad is not None
                yield batch.backward(step, dict(zip(parties, flat(z.grad), strict=True)))
                step += 1
            yield Report("split learning", epoch + 1, self.epochs, {"loss": loss.detach().mean()})
        owner.head = head

    def members(self, owner: LabelOwner) -> tuple[int, ...]:
        """The parties whose extractors are trained."""
        return owner.parties

    def plan(self, owner: LabelOwner, epoch: int) -> Iterator["Batch"]:
        """What an epoch consists of."""
        for rows in self.batches(owner, epoch):
            yield Batch(owner.labels[rows], dict.fromkeys(self.members(owner), rows))

    def batches(self, owner: LabelOwner, epoch: int) -> Iterator[Tensor]:
        """All aligned rows in a new order, cut into batches of nearly equal size."""
        n = len(owner.labels)
        order = rnd.permutation(owner.keys("batches"), "epoch", epoch, n)[0]
        return iter(order.tensor_split(per_epoch(n, self.batch)))

    def rate(self, step: int, rows: int) -> float:
        """The factor of both learning rates at a step."""
        return cosine(step, self.epochs * per_epoch(rows, self.batch)) if self.decay else 1.0

    def head(self, keys: Tensor, parties: int, width: int, classes: int) -> nn.Module:
        settings = HeadSettings(hidden=self.hidden, dropout=self.dropout, gate=False, adaptor=False)
        return HeadNet(keys, parties, width, classes, settings)

    def loss(
        self, head: nn.Module, z: Tensor, targets: Tensor, step: rnd.Counter, batch: "Batch"
    ) -> Tensor:
        """One number per model (E,) from embeddings z (E, M, B, d) and soft labels (E, B, Z)."""
        return soft_cross_entropy(head(z, step=step), targets)

    def probabilities(self, head: nn.Module, z: Tensor, here: Tensor) -> Tensor:
        """(B, Z) from z (E, M, B, d); `here` (M,) says which parties answered."""
        out: Tensor = head(z, here).softmax(-1).mean(0)
        return out

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        """A missing party's block is zero."""
        parties = self.members(owner)
        replies = yield {m: Embed("query") for m in parties if m in present}
        if not replies or owner.head is None:
            raise UserError(
                f"prediction needs a trained head and at least one of the parties {parties}"
            )
        z = _padded_blocks(replies, parties, self.models).to(owner.device)
        here = torch.tensor([m in replies for m in parties], device=owner.device)
        with torch.no_grad():
            return torch.cat(
                [self.probabilities(owner.head, part, here) for part in torch.split(z, 4096, 2)]
            )


@dataclass(frozen=True)
class Vanilla(SplitLearning):
    """Split learning from random extractors."""

    name: ClassVar[str] = "vanilla"
