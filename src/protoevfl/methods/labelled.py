"""Baselines with every label of the active party: its extractor is first trained on all its
labelled rows.

    min over E_0, W of  mean over its labelled rows of
                        cross-entropy( W E_0(x) + log(rate_z / shared_z), y )

The head W is thrown away; the joint training then starts from E_0. `rate` are the class rates of
all its labelled rows, `shared` those of the rows shared with the others: softmax(W E_0(x)) answers
with the rates of the latter, on which the joint training goes on (logit adjustment, Menon et al.
2021). Owner and extractor are the same company: nothing crosses.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from protoevfl.core import augment
from protoevfl.core import random as rnd
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.fit import fit
from protoevfl.messages import LearnLabels
from protoevfl.method import Report
from protoevfl.methods.ensemble import Ensemble, member_keys
from protoevfl.models import Linear, embed, inputs


@dataclass(frozen=True)
class LabelledSettings:
    """How all labels of the active party are learnt from, where it has more than those of the
    shared rows."""

    steps: int = 1000
    batch: int = 256
    lr: float = 1e-3
    weight_decay: float = 1e-2
    augment: float = 0.2  # strength of image views

    def epochs(self, rows: int) -> int:
        """As many as make about `steps` batches."""
        return max(1, round(self.steps * min(self.batch, rows) / rows))


def labelled_rows(owner: LabelOwner) -> tuple[Tensor, Tensor]:
    """All rows (n, ...) of the active party that have a label, and the labels (n,)."""
    assert owner.own is not None
    known = owner.own.labels >= 0
    return owner.own.rows[known], owner.own.labels[known]


def rate_offsets(labels: Tensor, shared: Tensor, classes: int) -> Tensor:
    """log(rate_z / shared_z) (Z,): class rates of `labels` over those of `shared`, each with one
    row more per class."""
    counts = torch.stack(
        [torch.bincount(part, minlength=classes) + 1.0 for part in (labels, shared)]
    )
    rates = counts / counts.sum(1, keepdim=True)
    return (rates[0] / rates[1]).log()


def pre_train(owner: LabelOwner) -> Generator[Any, Any, None]:
    """The talk between the owner and its own extractor, before anything joint."""
    rows, labels = labelled_rows(owner)
    offsets = rate_offsets(labels, owner.labels, owner.classes)
    yield {owner.parties[0]: LearnLabels(inputs(rows).flatten(1), labels, offsets)}
    yield Report("all labels", 1, 1)


def learn_labels(
    cohort: Cohort, net: Ensemble, request: LearnLabels, settings: LabelledSettings
) -> None:
    """Trains every network of every member on the rows of the request."""
    shape = cohort.rows.pool.shape[2:]
    rows = request.rows.view(*request.rows.shape[:2], *shape)
    keys = member_keys(rnd.derive(cohort.keys, "all labels"), net.models)
    # (G models,)
    member = torch.arange(cohort.size, device=rows.device).repeat_interleave(net.models)
    width = embed(net, rows[:, :1]).shape[-1] // net.models
    head = Linear(keys, "all labels", width, request.offsets.shape[-1])
    offsets = request.offsets[member, None]

    def loss(index: Tensor, step: rnd.Counter) -> Tensor:
        x = rows[member[:, None], index]
        if settings.augment and len(shape) == 3:
            x = augment.augment_images(x, keys, "all labels", step, settings.augment)
        log_p = (head(net.net(x)) + offsets).log_softmax(-1)
        truth = request.labels[member[:, None], index]
        losses: Tensor = -log_p.gather(-1, truth[..., None])[..., 0].mean(-1)
        return losses

    net.train()
    fit(
        loss,
        [*net.parameters(), *head.parameters()],
        keys,
        rows.shape[1],
        epochs=settings.epochs(rows.shape[1]),
        batch=settings.batch,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        purpose="all labels",
        progress=cohort.progress,
    )
