"""One-shot VFL (Sun et al. 2023, arXiv 2303.16270): three messages per party in all.

    up     embeddings of the aligned rows by fresh extractors
    down   the loss gradient of every row at them, at a fresh linear head:
           g_n = W_m (softmax(.) - e_{y_n})
    party  clusters of g are pseudo-labels; semi-supervised training on aligned and pool rows:
           CE(weak view of an aligned row, its cluster)
           + weight * [confident] CE(strong view of a pool row, its guess)
    up     new embeddings; the head is trained on them

Rows of one class have nearly the same gradient, so the clusters are the classes without their
names: few bytes, but all labels are given away. Departs: the semi-supervised part is FixMatch with
the project's own views.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protoevfl.core import augment
from protoevfl.core import random as rnd
from protoevfl.core.losses import soft_cross_entropy
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.fit import fit
from protoevfl.head import HeadNet
from protoevfl.messages import Embed, Embeddings, Message, PartialGradients
from protoevfl.method import PREDICTION, Exchanges, Report, Talk
from protoevfl.methods.clusters import k_means
from protoevfl.methods.ss_vfl import FrozenHead, PlainHead
from protoevfl.methods.warmup import gather
from protoevfl.models import Extractor, Linear, embed, extractor, inputs


@dataclass(frozen=True)
class OneShot(FrozenHead):
    """Clustered gradients as labels, FixMatch at each party, a head on frozen embeddings."""

    name: ClassVar[str] = "one_shot"
    exchanges: ClassVar[Exchanges] = (*PREDICTION, (PartialGradients, Embeddings))
    epochs: int = 20  # over the pool
    batch: int = 64  # aligned rows a step
    pool_batch: int = 192
    lr: float = 1e-3
    weight_decay: float = 1e-2
    threshold: float = 0.9  # confidence from which a guess counts
    unlabelled: float = 1.0  # weight of the pool's part
    weak: float = 0.3  # strength of weak image views; half of it replaces table columns
    strong: float = 1.0

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        return extractor(shape, keys)

    # ------------------------------------------------------------ party side

    def answer(self, cohort: Cohort, request: Message) -> Message:
        match request:
            case PartialGradients(groups=groups, gradients=gradients):
                labels = k_means(gradients, groups, rnd.derive(cohort.keys, "clusters"))
                self.learn(cohort, F.one_hot(labels, groups).float())
                return Embeddings(embed(cohort.net, cohort.rows.aligned))
            case Embed(rows=which):
                return Embeddings(embed(cohort.net, getattr(cohort.rows, which)))
        raise NotImplementedError(type(request).__name__)

    def learn(self, cohort: Cohort, targets: Tensor) -> Tensor:
        """Semi-supervised training on pseudo-labels (G, N_a, groups) of the aligned rows, in
        place."""
        net, keys = cohort.net, rnd.derive(cohort.keys, "semi-supervised")
        assert isinstance(net, Extractor)
        classifier = Linear(keys, "classifier", net.width, targets.shape[-1])
        aligned, pool = cohort.rows.aligned, cohort.rows.pool
        size, view = min(self.batch, aligned.shape[1]), viewer(cohort, keys)

        def loss(index: Tensor, step: rnd.Counter) -> Tensor:
            # (G, b)
            chosen = (rnd.uniform(keys, "aligned", step, (size,)) * aligned.shape[1]).long()
            x = inputs(gather(aligned, chosen))
            u = inputs(gather(pool, index))
            weak = view(torch.cat([x, u], 1), "weak", step, self.weak)
            strong = view(u, "strong", step, self.strong)
            logits = classifier(net(torch.cat([weak, strong], 1)))  # (G, b + 2B, groups)
            own, guess, hard = torch.split(logits, [size, index.shape[1], index.shape[1]], 1)
            known = soft_cross_entropy(own, gather(targets, chosen))
            sure, label = guess.detach().softmax(-1).max(-1)  # (G, B)
            each = -hard.log_softmax(-1).gather(-1, label[..., None]).squeeze(-1)  # (G, B)
            return known + self.unlabelled * (each * (sure >= self.threshold)).mean(1)

        net.train()
        return fit(
            loss,
            [*net.parameters(), *classifier.parameters()],
            keys,
            pool.shape[1],
            epochs=self.epochs,
            batch=self.pool_batch,
            lr=self.lr,
            weight_decay=self.weight_decay,
            purpose="semi-supervised",
            progress=cohort.progress,
        )

    # ------------------------------------------------------------ owner side

    def train(self, owner: LabelOwner) -> Talk:
        replies = yield {m: Embed("aligned") for m in owner.parties}
        gradients = partial_gradients(owner, self.blocks(owner, replies))  # (M, N, d)
        groups = int((torch.bincount(owner.labels) > 0).sum())
        replies = yield {
            m: PartialGradients(groups, gradients[i]) for i, m in enumerate(owner.parties)
        }
        yield Report("semi-supervised training", 1, 1)
        owner.head = yield self.head_task(owner, self.blocks(owner, replies))
        yield Report("head", 1, 1)


def viewer(cohort: Cohort, keys: Tensor) -> Callable[[Tensor, str, rnd.Counter, float], Tensor]:
    """A function that draws a view of a batch at some strength (tables: half of it replaces
    columns)."""
    spans, pool = cohort.rows.spans, cohort.rows.pool
    if spans is None:
        return lambda x, purpose, step, strength: augment.augment_images(
            x, keys, purpose, step, strength
        )
    columns = augment.span_index([b - a for a, b in spans], pool.device)
    return lambda x, purpose, step, strength: augment.corrupt_columns(
        x, pool, columns, keys, purpose, step, 0.5 * strength
    )


def partial_gradients(owner: LabelOwner, f: Tensor) -> Tensor:
    """dL/df (M, N, d) of each row's cross-entropy at a fresh linear head."""
    parties, _, width = f.shape
    head = HeadNet(owner.keys("fresh"), parties, width, owner.classes, PlainHead(hidden=0))
    f = f.detach().requires_grad_()
    loss = F.cross_entropy(head(f[None])[0], owner.labels, reduction="sum")
    return torch.autograd.grad(loss, f)[0]
