"""Local: the active party alone on its own columns. Nothing crosses.

    min over E_0, head of  cross-entropy( head(E_0(x_0)), y )

Labels of shared rows only: the talk is split learning between the label owner and its own
extractor, so the same mixup, ensemble and search serve. With all its labels the network is trained
on all its labelled rows in one go (`model = "network"`), or it is the own model that Proto-EVFL
starts from (`model = "own_model"`: boosting and a forest for tables, wide networks for images).
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.messages import Embed, values
from protoevfl.method import Asking, Exchanges, Report, Talk
from protoevfl.methods.labelled import labelled_rows, rate_offsets
from protoevfl.methods.own_model import OwnModelSettings, has_own_model, own_scores, train_own_model
from protoevfl.methods.split import SplitLearning
from protoevfl.methods.upper_bound import Classifier, Pooled, fit_classifier

MODELS = ("network", "own_model")


@dataclass(frozen=True)
class Local(SplitLearning):
    """Split learning with one member, the active party; one of two models where it has all its
    labels."""

    name: ClassVar[str] = "local"
    exchanges: ClassVar[Exchanges] = ()
    model: str = "network"  # with all labels; or "own_model"
    own: OwnModelSettings = field(default_factory=OwnModelSettings)

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UserError(f"local.model is one of {', '.join(MODELS)}, not '{self.model}'")

    def members(self, owner: LabelOwner) -> tuple[int, ...]:
        return owner.parties[:1]

    def train(self, owner: LabelOwner) -> Talk:
        if owner.own is None:
            yield from self.fine_tune(owner)
            return
        if self.model == "own_model":
            train_own_model(owner, self.own)
        else:
            rows, labels = labelled_rows(owner)
            fit_classifier(
                owner,
                self.pooled(len(rows)),
                rows,
                labels,
                rate_offsets(labels, owner.labels, owner.classes),
            )
        yield Report("local model", 1, 1)

    def pooled(self, rows: int) -> Pooled:
        """The network's settings for so many labelled rows."""
        s = self.labelled
        return Pooled(
            models=self.models,
            dropout=self.dropout,
            hidden=self.hidden,
            epochs=s.epochs(rows),
            batch=s.batch,
            lr=s.lr,
            weight_decay=s.weight_decay,
            augment=s.augment,
        )

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        """From the active party's columns; where they are missing, the rates of the labels,
        whatever others hold."""
        active = owner.parties[0]
        if active in present:
            if owner.own is not None and has_own_model(owner):
                return own_scores(owner, owner.own.query).exp()
            if owner.own is not None and isinstance(owner.head, Classifier):
                return owner.head.probabilities(owner.own.query)
            return (yield from super().predict(owner, present))
        replies = yield {active: Embed("query")}  # for the number of rows alone
        return rates(owner).expand(len(values(replies[active])), -1)


def rates(owner: LabelOwner) -> Tensor:
    """Class rates (Z,) of the aligned rows."""
    return torch.bincount(owner.labels, minlength=owner.classes) / len(owner.labels)
