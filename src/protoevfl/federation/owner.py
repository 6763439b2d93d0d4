"""The label owner: labels of the aligned rows, the head, and what the active party knows about the
classes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.rows.table import Further, OwnRows


@dataclass
class Central:
    """Everything in one place: pools with labels and all columns. For the upper bound alone;
    nothing federated."""

    pool: Tensor
    labels: Tensor
    query: Tensor


FEW = 10  # labelled rows under which a class counts as rare


def rare_classes(labels: Tensor, classes: int) -> tuple[int, ...]:
    """Classes with a few labelled rows, where the others have many."""
    counts = torch.bincount(labels, minlength=classes)
    few = (counts > 0) & (counts < FEW) & (counts < len(labels) / classes / 4)
    return tuple(few.nonzero()[:, 0].tolist())


def build_owner(
    labels: Tensor,
    classes: int,
    parties: int,
    seed: int,
    *,
    unseen: tuple[int, ...] = (),
    rare: tuple[int, ...] | None = None,
    open_classes: bool = False,
) -> "LabelOwner":
    """The label owner of a run, built in this one place.

    labels         (N_a,) of the aligned rows, on the device that trains the head
    unseen         classes known to have no label
    rare           classes known to have few; found by counting unless given
    open_classes   whether there may be classes nobody named
    """
    return LabelOwner(
        labels,
        classes,
        tuple(range(parties)),
        rnd.key(seed, "owner"),
        unseen=unseen,
        rare=rare_classes(labels, classes) if rare is None else rare,
        open=open_classes,
    )


@dataclass
class LabelOwner:
    """labels (N_a,) of the aligned rows in 0..classes-1; `unseen` are the classes declared to have
    no label."""

    labels: Tensor
    classes: int
    parties: tuple[int, ...]
    key: int
    unseen: tuple[int, ...] = ()
    rare: tuple[int, ...] = ()
    open: bool = False  # the class list may be incomplete
    # unseen class -> a row to be predicted that has it
    examples: Mapping[int, int] = field(default_factory=dict)
    # (Z, K) what is known of each class, seen and unseen: names groups of rows
    attributes: Tensor | None = None
    head: nn.Module | None = None
    memory: dict[str, Tensor] = field(default_factory=dict)
    central: Central | None = None
    own: OwnRows | None = None  # every label of the active party, where they are to be used
    further: Further | None = None
    names: tuple[str, ...] = ()  # of the parties, for messages to people
    # fitted models that can be fitted again; never kept
    cache: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.labels.numel() == 0:
            raise UserError(
                "no aligned labelled rows: at least one row must be shared by all parties"
            )
        if int(self.labels.min()) < 0 or int(self.labels.max()) >= self.classes:
            raise UserError(
                f"labels must lie in 0..{self.classes - 1}, found "
                f"{int(self.labels.min())}..{int(self.labels.max())}"
            )

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def name_of(self, party: int) -> str:
        """What people call a party."""
        return self.names[party] if self.names else f"party {party}"

    def keys(self, purpose: str, count: int = 1) -> Tensor:
        """Random keys (count,) for a piece of the owner's own work."""
        names = [rnd.key(self.key, purpose, i) for i in range(count)]
        return torch.tensor(names, dtype=torch.int64, device=self.device)

    def holdout(self, fraction: float) -> tuple[Tensor, Tensor]:
        """(training rows, validation rows): a random part of the aligned rows, class by class where
        there are enough.

        Rows are ranked within their class in a random order and the first share of each class is
        held out.
        """
        order = rnd.permutation(self.keys("holdout"), "holdout", 0, len(self.labels))[0]
        labels = self.labels[order]
        onehot = torch.nn.functional.one_hot(labels, self.classes)  # (N, Z)
        rank = (onehot.cumsum(0) * onehot).sum(1) - 1  # place within the class
        held = rank < (onehot.sum(0)[labels] * fraction).floor()
        return order[~held].sort().values, order[held].sort().values
