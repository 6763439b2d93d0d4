"""Upper bound: all rows of all pools with all columns and all labels in one place. Nothing federated about it.

    min over E, head of  cross-entropy( head(E(x)), y )   on every row that some party holds

Images of four quadrants are put together again; camera views become channels; tables are all columns. Nothing crosses
and the parties are not asked, so a missing party changes nothing.
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
class UpperBound:
    """`models` networks trained on everything, probabilities averaged."""

    name: ClassVar[str] = "upper_bound"
    exchanges: ClassVar[Exchanges] = ()
    models: int = 3
    epochs: int = 30
    batch: int = 256
    lr: float = 2e-3
    weight_decay: float = 1e-2
    mixup: float = 0.0
    augment: float = 0.0  # strength of image views
    dropout: float = 0.2
    hidden: int = 128

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        """Nothing: the parties have no part in this."""
        return nn.Identity()

    def answer(self, cohort: Cohort, request: Message) -> Message:
        raise NotImplementedError("the upper bound asks no party")

    def train(self, owner: LabelOwner) -> Talk:
        data = central(owner)
        keys = owner.keys("upper bound", self.models)
        net = Classifier(self, keys, tuple(whole(data.pool).shape[1:]), owner.classes)
        x, y = whole(data.pool), F.one_hot(data.labels, owner.classes).float()

        def loss(index: Tensor, step: rnd.Counter) -> Tensor:
            rows, t = inputs(x[index]), y[index]  # (E, B, ...), (E, B, Z)
            if self.augment and rows.dim() == 5:
                rows = augment.augment_images(rows, keys, "view", step, self.augment)
            f = net.body(rows)[:, None]  # (E, 1, B, d)
            if self.mixup:
                f, t = mixup(f, t, keys, step, self.mixup)
            return soft_cross_entropy(net.head(f, step=step), t)

        losses = fit(
            loss, net.parameters(), keys, len(x), epochs=self.epochs, batch=self.batch, lr=self.lr,
            weight_decay=self.weight_decay, purpose="upper bound",
        )  # fmt: skip
        owner.head = net
        yield Report("pooled training", 1, 1, {"loss": losses[-1].mean()})

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        yield from ()
        if not isinstance(owner.head, Classifier):
            raise UserError("the upper bound is not trained yet")
        rows = whole(central(owner).query)
        f = embed(owner.head.body, rows.expand(self.models, *rows.shape))[:, None]  # (E, 1, n, d)
        with torch.no_grad():
            out: Tensor = owner.head.head(f).softmax(-1).mean(0)
        return out


class Classifier(nn.Module):
    """`models` extractors with their heads."""

    def __init__(self, method: UpperBound, keys: Tensor, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        settings = HeadSettings(hidden=method.hidden, dropout=method.dropout, gate=False, adaptor=False)
        self.body: Extractor = extractor(shape, keys)
        self.head = HeadNet(keys, 1, self.body.width, classes, settings)


def central(owner: LabelOwner) -> Central:
    if owner.central is None:
        raise UserError("the upper bound needs all rows and labels in one place, which only a simulation has")
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
