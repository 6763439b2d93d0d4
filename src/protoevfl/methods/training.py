"""The owner's side of Proto-EVFL's training: what it asks the parties for, in order, and what it
keeps of their answers."""

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.head import Drawn, HeadTask
from protoevfl.messages import (
    Describe,
    Embed,
    Message,
    OwnFeatures,
    SendFeatures,
    Statistics,
    WarmUp,
    values,
)
from protoevfl.method import Report, Talk
from protoevfl.methods import sealed
from protoevfl.methods.own_model import has_own_model, train_own_model
from protoevfl.methods.prototype_rounds import blocks_of, class_means, hold_rounds
from protoevfl.methods.unseen import UnseenSettings, lacking, synthetic

if TYPE_CHECKING:
    from protoevfl.methods.proto_evfl import ProtoEVFL


def train(settings: "ProtoEVFL", owner: LabelOwner) -> Talk:
    owner.cache.clear()  # models of an earlier training
    if owner.own is not None:
        train_own_model(owner, settings.own)
        yield Report("own model", 1, 1)
    if settings.columns == "sealed":
        yield from train_sealed(owner)
        return
    linear = (
        owner.own is not None and owner.own.rows.dim() == 2 and not lacking(owner, settings.unseen)
    )
    if linear:
        owner.memory["linear"] = torch.ones((), device=owner.device)
    replies = yield {m: SendFeatures() if linear else WarmUp() for m in owner.parties}
    f = blocks_of(owner, replies)  # (M, N, d)
    warm = set(replies)
    yield Report("warm-up", 1, 1)
    mu, counts = class_means(settings, owner, f)
    prior = torch.full((owner.classes,), 1 / owner.classes, device=owner.device)
    if settings.has_rounds and not linear:
        f, mu, counts, prior, warm = yield from hold_rounds(
            settings, owner, f, mu, counts, prior, warm
        )
        if settings.layers != ("output",):
            replies = yield {m: Embed("aligned") for m in owner.parties}
            f = blocks_of(owner, replies)  # the layers of before would not fit these
            warm = set(replies)
    owner.memory |= {
        "prototypes": mu,
        "shown": (counts > 0).float(),
        "prior": prior,
        "embeddings": f,
        "usable": torch.tensor([m in warm for m in owner.parties], device=owner.device),
    }
    if owner.further is not None:
        sharing = [m for m in owner.parties if bool(owner.further.shared[m].any())]
        replies = yield {m: Embed("further") for m in sharing}
        owner.memory |= {
            "further": further_blocks(owner, replies, f.shape[-1]),
            "further.labels": owner.further.labels,
            "further.shared": owner.further.shared,
        }
        yield Report("further rows", 1, 1)
    drawn = yield from described(settings.unseen, owner, f, mu)
    if not (settings.head_each_round or linear):
        keys = owner.keys("head", settings.head.members)
        owner.head = yield HeadTask(keys, f, owner.labels, owner.classes, settings.head, drawn)
    yield Report("head", 1, 1)


def train_sealed(owner: LabelOwner) -> Talk:
    """Scores of the other parties beside the active party's own model, or beside its features
    where it has no labels but those of the shared rows."""
    if owner.unseen or owner.open:
        raise UserError(
            "a class without any label needs to see rows of the other parties: use the open "
            "level (preset default) for it, or leave the class out"
        )
    scores = yield from sealed.ask_for_scores(owner)
    if not has_own_model(owner):
        replies = yield {0: OwnFeatures()}
        scores[0] = values(replies[0]).to(owner.device)
    if not scores:
        raise UserError("no other party sent scores: there is nothing to join")
    width = max(sent.shape[1] for sent in scores.values())
    count = len(owner.labels)
    blocks = torch.zeros(len(owner.parties), count, width, device=owner.device)
    for m, sent in scores.items():
        blocks[m, :, : sent.shape[1]] = sent[:count]
    usable = [m in scores or (m == 0 and has_own_model(owner)) for m in owner.parties]
    owner.memory |= {
        "linear": torch.ones((), device=owner.device),
        "scores": torch.ones((), device=owner.device),
        "embeddings": blocks,
        "usable": torch.tensor(usable, device=owner.device),
    }
    if owner.further is not None:
        shared = owner.further.shared
        further = torch.zeros(*shared.shape, width, device=owner.device)
        for m, sent in scores.items():
            further[m, shared[m], : sent.shape[1]] = sent[count:]
        owner.memory |= {
            "further": further,
            "further.labels": owner.further.labels,
            "further.shared": shared,
        }
    yield Report("joint model", 1, 1)


def described(
    unseen: UnseenSettings, owner: LabelOwner, f: Tensor, mu: Tensor
) -> Generator[Any, Any, Sequence[Drawn]]:
    """Where a class lacks labels: rows to draw for it, from the parties' statistics of
    uncovered rows."""
    if not lacking(owner, unseen):
        return []
    groups = max(len(owner.unseen), int(owner.open))
    replies = yield {m: Describe(groups) for m in owner.parties}
    statistics = [r for r in replies.values() if isinstance(r, Statistics)]
    owner.memory["strength"] = torch.stack([s.reliability.amax() for s in statistics])
    drawn: Sequence[Drawn] = []
    # a lost party has none: the head does without drawn rows
    if len(statistics) == len(owner.parties):
        drawn = synthetic(owner, statistics, f, mu.shape[-1])
    yield Report("statistics", 1, 1, {"strength": owner.memory["strength"]})
    return drawn


def further_blocks(owner: LabelOwner, replies: Mapping[int, Message], width: int) -> Tensor:
    """Embeddings (M, F, width) of the further shared rows; zeros where a party has not the
    row."""
    assert owner.further is not None
    shared = owner.further.shared
    blocks = torch.zeros(*shared.shape, width, device=owner.device)
    for m, reply in replies.items():
        sent = values(reply).to(owner.device)
        blocks[m, shared[m]] = nn.functional.pad(sent, (0, width - sent.shape[-1]))
    return blocks
