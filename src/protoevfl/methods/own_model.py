"""The active party's own model: all its labels, its own columns, nobody else.

It is what the company has without joining, so the joint model starts from it and it answers where
nobody else has the row. Five members; member k leaves out fold k of the labelled rows, so that
every labelled row has an honest score without another fit:

    log p(z | x) = log mean_k p_k(z | x)           rows that no member has seen
    log p(z | x) = log p_fold(x)(z | x)            rows that were learnt from, by the member that left them out

Tables: gradient boosting and a forest on the encoded columns, weighed by cross-fitted log-loss,
natural class rates (methods/own_trees.py). Images: a small convolutional network per member, with
logit adjustment (Menon et al. 2021): the loss is taken at logits + log rate_z, so that
softmax(logits) treats classes as equally frequent whatever the pool's rates are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import augment
from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.fit import fit
from protoevfl.methods.own_trees import fit_trees, floored, tree_scores
from protoevfl.models import Linear, WideNet, inputs

PREFIX = "own."


@dataclass(frozen=True)
class OwnModelSettings:
    """How the active party's own model is trained."""

    members: int = 5  # models averaged, each without one fold
    steps: int = 1200  # of the networks (images)
    batch: int = 256
    lr: float = 1e-3
    weight_decay: float = 1e-2
    strength: float = 0.3  # of image views
    mixup: float = 0.4  # Beta(a, a)
    width: int = 128  # of the last layer


def train_own_model(owner: LabelOwner, settings: OwnModelSettings) -> None:
    """Fits the model on `owner.own` and keeps it in the owner's memory, with honest scores of the
    shared rows."""
    own = owner.own
    assert own is not None
    known = (own.labels >= 0).nonzero()[:, 0]
    rows = own.rows[known]
    labels = own.labels[known]
    fold = folds(labels, owner.classes, settings.members, owner.keys("own folds"))
    if rows.dim() == 2:
        if int(torch.bincount(labels).max()) < settings.members:
            raise UserError(
                f"the active party's own model needs at least {settings.members} labelled rows of "
                "one class; "
                "label more rows, or learn from the shared rows alone (labels = shared)"
            )
        kept, cross_fitted = fit_trees(rows, labels, fold, owner.classes, owner.key % 2**31)
    else:
        # only shared rows need honest scores: all members learn from the rest
        fold[known >= own.shared_rows] = -1
        kept, cross_fitted = _fit_networks(rows, labels, fold, owner, settings)
    owner.memory |= {f"{PREFIX}{name}": tensor for name, tensor in kept.items()}
    shared = own.shared_rows
    scores = torch.zeros(shared, owner.classes, device=owner.device)
    labelled = own.labels[:shared] >= 0
    scores[labelled] = cross_fitted[: int(labelled.sum())].to(scores)
    if not bool(labelled.all()):
        scores[~labelled] = own_scores(owner, own.rows[:shared][~labelled])
    owner.memory[f"{PREFIX}shared"] = scores


def folds(labels: Tensor, classes: int, count: int, key: Tensor) -> Tensor:
    """A fold (n,) of 0..count-1 for every row, class by class in a random order."""
    order = rnd.permutation(key, "fold", 0, len(labels))[0]
    onehot = F.one_hot(labels[order], classes)
    rank = (onehot.cumsum(0) * onehot).sum(1) - 1  # place within the class
    fold = torch.empty_like(labels)
    fold[order] = rank % count
    return fold


def has_own_model(owner: LabelOwner) -> bool:
    return f"{PREFIX}shared" in owner.memory


def own_scores(owner: LabelOwner, rows: Tensor) -> Tensor:
    """Log-probabilities (n, Z) of rows (n, ...) the model has not learnt from."""
    kept = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in owner.memory.items()
        if name.startswith(PREFIX)
    }
    if rows.dim() == 2:
        members = tree_scores(kept, rows)
    else:
        members = _network_scores(kept, rows.to(owner.device))
    mean: Tensor = members.to(owner.device).logsumexp(0) - float(np.log(len(members)))
    return floored(mean)


def _fit_networks(
    rows: Tensor, labels: Tensor, fold: Tensor, owner: LabelOwner, settings: OwnModelSettings
) -> tuple[dict[str, Tensor], Tensor]:
    """(weights as tensors, cross-fitted scores (n, Z)) of one network per member."""
    device = owner.device
    rows, labels, fold = rows.to(device), labels.to(device), fold.to(device)
    keys = owner.keys("own network", settings.members)
    members = torch.arange(settings.members, device=device)
    used = (fold != members[:, None]).float()  # (K, n)
    y = F.one_hot(labels, owner.classes).float()
    rate = used @ y / used.sum(1, keepdim=True)  # (K, Z)
    edges = (used.cumsum(1) / used.sum(1, keepdim=True)).contiguous()
    net = WideNet(keys, rows.shape[1], rows.shape[2], settings.width)
    out = Linear(keys, "classes", net.width, owner.classes)
    batch = min(settings.batch, len(rows))

    def loss(index: Tensor, step: rnd.Counter) -> Tensor:
        uniform = rnd.uniform(keys, "draw", step, (index.shape[1],))
        drawn = torch.searchsorted(edges, uniform).clamp(max=len(rows) - 1)  # (K, B)
        x = augment.augment_images(inputs(rows[drawn]), keys, "own", step, settings.strength)
        lam = rnd.beta_symmetric(keys, "mix", step, (1,), settings.mixup)  # (K, 1)
        other = rnd.permutation(keys, "partner", step, index.shape[1])
        x = torch.lerp(x[members[:, None], other], x, lam[:, :, None, None, None])
        target = torch.lerp(y[drawn.gather(1, other)], y[drawn], lam[:, :, None])
        logits = out(net(x)) + rate.clamp(min=1e-8).log()[:, None]
        losses: Tensor = -(target * logits.log_softmax(-1)).sum(-1).mean(-1)
        return losses

    net.train()
    fit(
        loss,
        [*net.parameters(), *out.parameters()],
        keys,
        settings.steps * batch,
        epochs=1,
        batch=batch,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        purpose="own model",
    )
    kept = {f"net.{name}": tensor.detach().clone() for name, tensor in net.state_dict().items()}
    kept |= {f"out.{name}": tensor.detach().clone() for name, tensor in out.state_dict().items()}
    scores = _network_scores(kept, rows)  # (K, n, Z)
    honest: Tensor = scores[fold, torch.arange(len(rows), device=device)]
    return kept, floored(honest)


def _network_scores(kept: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """Log-probabilities (K, n, Z) of rows (n, c, H, W) by the kept networks."""
    last = kept["out.weight"]  # (K, width, Z)
    keys = torch.arange(len(last), device=rows.device)
    net = WideNet(keys, rows.shape[1], rows.shape[2], last.shape[1])
    out = Linear(keys, "classes", last.shape[1], last.shape[2])
    for module, part in ((net, "net."), (out, "out.")):
        state = {
            n.removeprefix(part): t.to(rows.device) for n, t in kept.items() if n.startswith(part)
        }
        module.load_state_dict(state)
    net.eval()
    with torch.no_grad():
        parts = [
            out(net(inputs(batch).expand(len(keys), *batch.shape)))
            for batch in torch.split(rows, 1024)
        ]
    return torch.cat(parts, 1).log_softmax(-1)
