"""What Proto-EVFL's owner answers for rows to be predicted: which of its models decides, by what
was trained, who is there and how many rows are asked for at once."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from protoevfl.federation.owner import LabelOwner
from protoevfl.head import HeadNet, probabilities
from protoevfl.messages import Embed, values
from protoevfl.method import Asking
from protoevfl.methods import sealed
from protoevfl.methods.batch import (
    Batch,
    batch_of,
    guess_unseen,
    learnt_before,
    one_class_more,
    predict_batch,
    predict_by_earlier_batch,
)
from protoevfl.methods.guesses import Found, evidence
from protoevfl.methods.joint import class_shift, log_rates, predict_joint
from protoevfl.methods.own_model import has_own_model
from protoevfl.methods.stacking import predict_stacked
from protoevfl.methods.unseen import UnseenSettings, lacking

if TYPE_CHECKING:
    from protoevfl.methods.proto_evfl import ProtoEVFL


def predict(settings: "ProtoEVFL", owner: LabelOwner, present: tuple[int, ...]) -> Asking:
    replies = yield {m: Embed("query") for m in owner.parties if m in present}
    here = torch.tensor([m in replies for m in owner.parties], device=owner.device)
    # the head has never seen a party that was away at the end of training
    here &= owner.memory.get("usable", here)
    rows = len(values(next(iter(replies.values()))))
    width = owner.memory["embeddings"].shape[-1]
    f = torch.zeros(len(owner.parties), rows, width, device=owner.device)
    for i, m in enumerate(owner.parties):
        if m in replies:
            sent = values(replies[m])
            f[i, :, : sent.shape[-1]] = sent
    return decide(settings, owner, f, here)


def decide(settings: "ProtoEVFL", owner: LabelOwner, f: Tensor, here: Tensor) -> Tensor:
    """Probabilities (n, Z) of query embeddings f (M, n, d); in open mode a last column for
    "none of these"."""
    many = f.shape[1] >= settings.unseen.least_rows
    f = sealed.of_one_spread(owner, f)
    if "scores" in owner.memory and settings.unseen.self_training and many:
        return decide_by_batch(settings.unseen, owner, f, here)
    if "linear" in owner.memory:  # tables with every label: methods/joint.py
        return predict_joint(owner, f, here)
    if has_own_model(owner) and bool(here[0]) and not lacking(owner, settings.unseen):
        shared = owner.memory["embeddings"]
        width = owner.memory["prototypes"].shape[-1]
        return predict_stacked(owner, shared, f, here, width, settings.unseen)
    if not (many and settings.unseen.batch):
        p = decide_one_by_one(settings, owner, f, here)
        return nn.functional.pad(p, (0, 1)) if owner.open else p
    p = decide_together(settings, owner, f, here)
    return nn.functional.pad(p, (0, owner.classes + int(owner.open) - p.shape[1]))


def decide_together(settings: "ProtoEVFL", owner: LabelOwner, f: Tensor, here: Tensor) -> Tensor:
    """Many rows, which say more together than one by one; with an open class list a last
    column where the open test found a class that nobody named."""
    aligned = owner.memory["embeddings"]
    width = owner.memory["prototypes"].shape[-1]
    if owner.open and bool(here.all()) and lacking(owner, settings.unseen):
        another = one_class_more(owner)
        batch = batch_of(another, aligned, f, here, width, settings.unseen)
        if (guess := something_unseen(another, batch, settings.unseen.open_bar)) is not None:
            return predict_batch(another, batch, here, settings.unseen, guess)
    sought = owner if lacking(owner, settings.unseen) else replace(owner, unseen=(), rare=())
    # with many labels the head is as good
    scarce = settings.unseen.self_training and aligned.shape[1] <= settings.unseen.batch_rows
    if not (sought.unseen or sought.rare or scarce):
        return decide_by_head(settings, owner, f, here)
    batch = batch_of(sought, aligned, f, here, width, settings.unseen)
    return predict_batch(sought, batch, here, settings.unseen)


def decide_one_by_one(settings: "ProtoEVFL", owner: LabelOwner, f: Tensor, here: Tensor) -> Tensor:
    """Few rows: by what an earlier batch taught of classes without labels, else by the head."""
    sought = owner.unseen if lacking(owner, settings.unseen) else ()
    if sought and settings.unseen.batch and learnt_before(owner, here):
        width = owner.memory["prototypes"].shape[-1]
        return predict_by_earlier_batch(owner, f, here, width)
    return decide_by_head(settings, owner, f, here)


def decide_by_head(settings: "ProtoEVFL", owner: LabelOwner, f: Tensor, here: Tensor) -> Tensor:
    """The heads' mean, brought back to natural class rates where training weighed classes the
    same: by the shift under which the shared rows have the rates of their labels. The log rates
    themselves would be too much, because mixup, noise and the mean over heads leave
    probabilities less sure than they should be."""
    assert isinstance(owner.head, HeadNet)
    p = probabilities(owner.head, f, here)
    if not settings.head.balanced:
        return p
    key = ("rates", tuple(here.tolist()))
    if key not in owner.cache:
        shared = probabilities(owner.head, owner.memory["embeddings"], here)
        logits = shared.clamp(min=1e-12).log().double().cpu().numpy()
        rates = log_rates(owner.labels, owner.classes).exp().double().cpu().numpy()
        owner.cache[key] = torch.from_numpy(class_shift(logits, rates)).to(p)
    natural: Tensor = (p.clamp(min=1e-12).log() + owner.cache[key]).softmax(1)
    return natural


def decide_by_batch(unseen: UnseenSettings, owner: LabelOwner, f: Tensor, here: Tensor) -> Tensor:
    """Images at the sealed level: scores in the place of embeddings, the batch teaches too."""
    shared = owner.memory["embeddings"]
    width = shared.shape[-1]
    if has_own_model(owner) and bool(here[0]):
        return predict_stacked(owner, shared, f, here, width, unseen)
    me = replace(owner, unseen=(), rare=())
    batch = batch_of(me, shared, f, here, width, unseen)
    return predict_batch(me, batch, here, unseen)


def something_unseen(owner: LabelOwner, batch: Batch, bar: float) -> Found | None:
    """The open test: the guess which rows of a batch are of a class nobody named, where there
    is evidence enough of one; `owner` has it as its only class without labels."""
    guess = guess_unseen(owner, batch)
    strength = evidence(owner, guess)
    fires = strength > bar
    owner.memory |= {"open_strength": strength, "open_fires": fires.float()}
    return guess if bool(fires) else None
