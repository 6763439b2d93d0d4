"""Split learning (Vanilla VFL): embeddings go up, gradients come down, batch by batch.

    z_m = E_m(x_m)      L = cross-entropy( head(concat_m z_m), y )      party m receives dL/dz_m

Two messages a batch and passive party, N_a d 4 bytes each way an epoch. Gradients are derived from labels row by row,
which is why this family leaks labels (docs/privacy.md). `models` extractors a party are trained side by side and their
heads averaged; mixup acts on the embeddings at the owner. Fine-tuning after a warm-up (SS-VFL-C) is the same talk.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protoevfl.core import random as rnd
from protoevfl.core.losses import soft_cross_entropy
from protoevfl.fit import adamw
from protoevfl.head import HeadNet, HeadSettings, mixup
from protoevfl.messages import BackwardBatch, Done, Embed, Embeddings, ForwardBatch, Message, values
from protoevfl.method import Asking, Report, Talk
from protoevfl.methods.warmup import gather
from protoevfl.models import BatchNorm, embed, extractor, inputs
from protoevfl.owner import LabelOwner
from protoevfl.party import Cohort


@dataclass(frozen=True)
class Vanilla:
    """Split learning from random extractors."""

    name: ClassVar[str] = "vanilla"
    models: int = 3  # extractors (and heads) averaged
    epochs: int = 60
    batch: int = 64
    lr: float = 1e-3  # of the extractors
    head_lr: float = 1e-3
    weight_decay: float = 1e-2
    mixup: float = 1.0
    dropout: float = 0.2
    hidden: int = 128
    validation: float = 0.0  # share of aligned rows kept for early stopping

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        """`models` extractors for each of G parties, stacked as (G, models)."""
        members = torch.cat([rnd.derive(keys, "model", i) for i in range(self.models)]).view(self.models, -1)
        return Ensemble(extractor(shape, members.T.reshape(-1)), self.models)

    # ------------------------------------------------------------ party side

    def answer(self, cohort: Cohort, request: Message) -> Message:
        match request:
            case ForwardBatch(rows=rows):
                with torch.no_grad():
                    return Embeddings(self.forward(cohort, rows, track=False))
            case BackwardBatch():
                return self.backward(cohort, request)
            case Embed(rows=which):
                return Embeddings(embed(cohort.net, getattr(cohort.rows, which)))
        raise NotImplementedError(type(request).__name__)

    def forward(self, cohort: Cohort, rows: Tensor, track: bool) -> Tensor:
        for module in cohort.net.modules():
            if isinstance(module, BatchNorm):
                module.track = track
        out: Tensor = cohort.net(inputs(gather(cohort.rows.aligned, rows)))
        return out

    def backward(self, cohort: Cohort, request: BackwardBatch) -> Message:
        """Recomputes the forward pass, so that a party can be rebuilt between any two messages."""
        optimizer = cohort.optimizer("split", lambda: adamw(cohort.net.parameters(), self.lr, self.weight_decay))
        z = self.forward(cohort, request.rows, track=True)
        optimizer.zero_grad()
        z.backward(request.gradients)  # type: ignore[no-untyped-call]
        optimizer.step()
        return Done()

    # ------------------------------------------------------------ owner side

    def train(self, owner: LabelOwner) -> Talk:
        parties, n = owner.parties, len(owner.labels)
        keys = owner.keys("head", self.models)
        head, optimizer, step = None, None, 0
        y = F.one_hot(owner.labels, owner.classes).float()
        for epoch in range(self.epochs):
            order = rnd.permutation(owner.keys("batches"), "epoch", epoch, n)[0]
            starts = range(0, max(1, n - self.batch // 3), self.batch)  # a very short last batch is left out
            for start in starts:
                rows = order[start : start + self.batch]
                replies = yield {m: ForwardBatch(step, rows) for m in parties}
                z = self.blocks(replies, parties).to(owner.device).requires_grad_()  # (E, M, B, d)
                if head is None:
                    head = HeadNet(keys, len(parties), z.shape[-1], owner.classes, self.head_settings())
                    optimizer = adamw(head.parameters(), self.head_lr, self.weight_decay)
                assert optimizer is not None
                x, t = z, y[rows].expand(self.models, -1, -1)
                if self.mixup:
                    x, t = mixup(x, t, keys, step, self.mixup)
                loss = soft_cross_entropy(head(x, step=torch.tensor(step, device=owner.device)), t)
                optimizer.zero_grad()
                loss.sum().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                assert z.grad is not None
                back = self.flat(z.grad)
                yield {m: BackwardBatch(step, rows, back[i]) for i, m in enumerate(parties)}
                step += 1
            yield Report("split learning", epoch + 1, self.epochs, {"loss": loss.detach().mean()})
        owner.head = head

    def head_settings(self) -> HeadSettings:
        return HeadSettings(members=self.models, hidden=self.hidden, dropout=self.dropout, gate=False, adaptor=False)

    def blocks(self, replies: Mapping[int, Message], parties: tuple[int, ...]) -> Tensor:
        """Replies (B, E*d) of each party as (E, M, B, d)."""
        stacked = torch.stack([values(replies[m]) for m in parties])  # (M, B, E*d)
        return stacked.view(*stacked.shape[:2], self.models, -1).movedim(2, 0)

    @staticmethod
    def flat(z: Tensor) -> Tensor:
        """The inverse of `blocks`: (E, M, B, d) -> (M, B, E*d)."""
        return z.movedim(0, 2).flatten(2)

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        asked = [m for m in owner.parties if m in present]
        replies = yield {m: Embed("query") for m in asked}
        some = values(next(iter(replies.values())))
        full = {m: replies.get(m, Embeddings(torch.zeros_like(some))) for m in owner.parties}
        f = self.blocks(full, owner.parties).to(owner.device)
        here = torch.tensor([m in replies for m in owner.parties], device=owner.device)
        assert isinstance(owner.head, HeadNet)
        return torch.cat([_average(owner.head, f[:, :, i : i + 4096], here) for i in range(0, f.shape[2], 4096)])


@torch.no_grad()
def _average(head: HeadNet, f: Tensor, here: Tensor) -> Tensor:
    out: Tensor = head(f, here).softmax(-1).mean(0)
    return out


class Ensemble(nn.Module):
    """`models` extractors a member on the same rows; outputs side by side: (G, B, models*d)."""

    def __init__(self, net: nn.Module, models: int) -> None:
        super().__init__()
        self.net, self.models = net, models

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)["output"]

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        wide = x.repeat_interleave(self.models, 0)  # (G*models, B, ...)
        z: Tensor = self.net(wide)
        return {"output": z.view(-1, self.models, *z.shape[1:]).movedim(1, 2).flatten(2)}
