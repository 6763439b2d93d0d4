"""Upper bound: all rows of all pools with all columns and all labels in one place. Nothing
federated about it.

    min over E, head of  cross-entropy( head(E(x)), y )   on every row that some party holds

Images of four quadrants are put together again; camera views become channels; tables are all
columns. Nothing crosses and the parties are not asked, so a missing party changes nothing.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protoevfl.core import augment
from protoevfl.core import random as rnd
from protoevfl.core.losses import soft_cross_entropy
from protoevfl.errors import UserError
from protoevfl.federation.owner import Central, LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.fit import fit
from protoevfl.head import HeadNet, HeadSettings, mixup
from protoevfl.messages import Message
from protoevfl.method import Asking, Exchanges, Report, Talk
from protoevfl.models import Extractor, embed, extractor, inputs


@dataclass(frozen=True)
class Pooled:
    """`models` networks on rows that lie in one place, probabilities averaged."""

    models: int = 3
    epochs: int = 30
    batch: int = 256
    lr: float = 2e-3
    weight_decay: float = 1e-2
    mixup: float = 0.0
    augment: float = 0.0  # strength of image views
    dropout: float = 0.2
    hidden: int = 128


@dataclass(frozen=True)
class UpperBound(Pooled):
    """Networks trained on everything."""

    name: ClassVar[str] = "upper_bound"
    exchanges: ClassVar[Exchanges] = ()

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        """Nothing: the parties have no part in this."""
        return nn.Identity()

    def answer(self, cohort: Cohort, request: Message) -> Message:
        raise NotImplementedError("the upper bound asks no party")

    def train(self, owner: LabelOwner) -> Talk:
        data = central(owner)
        losses = fit_classifier(owner, self, whole(data.pool), data.labels)
        yield Report("pooled training", 1, 1, {"loss": losses[-1].mean()})

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        yield from ()
        if not isinstance(owner.head, Classifier):
            raise UserError("the upper bound is not trained yet")
        return owner.head.probabilities(whole(central(owner).query))


class Classifier(nn.Module):
    """`models` extractors with their heads."""

    def __init__(self, method: Pooled, keys: Tensor, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.models = len(keys)
        settings = HeadSettings(
            hidden=method.hidden, dropout=method.dropout, gate=False, adaptor=False
        )
        self.body: Extractor = extractor(shape, keys)
        self.head = HeadNet(keys, 1, self.body.width, classes, settings)

    @torch.no_grad()
    def probabilities(self, rows: Tensor) -> Tensor:
        """(n, Z) of rows (n, ...), the mean over the networks."""
        f = embed(self.body, rows.expand(self.models, *rows.shape))[:, None]  # (E, 1, n, d)
        out: Tensor = self.head(f).softmax(-1).mean(0)
        return out


def fit_classifier(
    owner: LabelOwner, method: Pooled, x: Tensor, labels: Tensor, offsets: Tensor | float = 0.0
) -> Tensor:
    """Leaves a `Classifier` of rows x (n, ...) with the owner; returns the mean loss of each epoch.

    offsets   (Z,) added to the logits while training: class rates of these rows that predictions
    shall not have
    """
    keys = owner.keys("upper bound", method.models)
    net = Classifier(method, keys, tuple(x.shape[1:]), owner.classes)
    y = F.one_hot(labels, owner.classes).float()

    def loss(index: Tensor, step: rnd.Counter) -> Tensor:
        rows, t = inputs(x[index]), y[index]  # (E, B, ...), (E, B, Z)
        if method.augment and rows.dim() == 5:
            rows = augment.augment_images(rows, keys, "view", step, method.augment)
        f = net.body(rows)[:, None]  # (E, 1, B, d)
        if method.mixup:
            f, t = mixup(f, t, keys, step, method.mixup)
        return soft_cross_entropy(net.head(f, step=step) + offsets, t)

    losses = fit(
        loss,
        net.parameters(),
        keys,
        len(x),
        epochs=method.epochs,
        batch=method.batch,
        lr=method.lr,
        weight_decay=method.weight_decay,
        purpose="upper bound",
    )
    owner.head = net
    return losses


def central(owner: LabelOwner) -> Central:
    if owner.central is None:
        raise UserError(
            "the upper bound needs all rows and labels in one place, which only a simulation has"
        )
    return owner.central


def whole(rows: Tensor) -> Tensor:
    """Four quadrants (n, 4, h, w) as one image (n, 1, 2h, 2w); anything else as it is.

    >>> whole(torch.arange(4).view(1, 4, 1, 1)).tolist()
    [[[[0, 1], [2, 3]]]]
    """
    if rows.dim() != 4 or rows.shape[1] != 4:
        return rows
    n, _, h, w = rows.shape
    return rows.view(n, 2, 2, h, w).transpose(2, 3).reshape(n, 1, 2 * h, 2 * w)
