"""The owner's side of Proto-EVFL's rounds: prototypes go down, new embeddings and class rates come
up, prototypes and prior move; training stops where embeddings collapse."""

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from protoevfl.core import metrics, prototypes, transport
from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.head import HeadNet, train_head
from protoevfl.messages import Learn, Learned, Message, WarmUp, values
from protoevfl.method import Report

if TYPE_CHECKING:
    from protoevfl.methods.proto_evfl import ProtoEVFL


def hold_rounds(
    settings: "ProtoEVFL",
    owner: LabelOwner,
    f: Tensor,
    mu: Tensor,
    counts: Tensor,
    prior: Tensor,
    warm: set[int],
) -> Generator[Any, Any, tuple[Tensor, Tensor, Tensor, Tensor, set[int]]]:
    """The rounds: prototypes go down, new embeddings and class rates come up, prototypes and
    prior move."""
    best = -1.0
    stale = 0
    peak = _effective_ranks(settings, f)
    for t in range(settings.rounds.count):
        shown = (counts >= settings.rounds.least_rows).float()  # (M, Z)
        ask = {m: Learn(t, mu[i], shown[i], prior) for i, m in enumerate(owner.parties)}
        # a party that is back after an absence makes up for its warm-up first
        replies = yield {m: ask[m] if m in warm else WarmUp() for m in owner.parties}
        f = blocks_of(owner, replies, f)
        warm = warm | set(replies)
        learned = {m: r for m, r in replies.items() if isinstance(r, Learned)}
        peak = guard(settings, owner, f, mu, shown, peak, list(learned))
        figures = _fit_head(settings, owner, f) if settings.head_each_round else {}
        means, counts = class_means(settings, owner, f)
        if settings.rounds.update != "none":
            mu = prototypes.update(mu, means, counts, settings.rounds.rho, settings.rounds.update)  # type: ignore[arg-type]
        if learned:  # nobody learned where all who answered were back for their warm-up
            prior = torch.stack([r.prior for r in learned.values()]).mean(0).to(owner.device)
        held = held_out(settings, owner, f)
        figures = {"prior": prior, "held_out": held, **figures}
        yield Report("rounds", t + 1, settings.rounds.count, figures)
        stale = 0 if held > best else stale + 1
        best = max(held, best)
        if settings.rounds.patience and stale >= settings.rounds.patience:
            break
    return f, mu, counts, prior, warm


def blocks_of(
    owner: LabelOwner, replies: Mapping[int, Message], before: Tensor | None = None
) -> Tensor:
    """Embeddings (M, N, d) of the parties; one that did not answer keeps its last ones, zeros
    where it has none."""
    width = max(values(r).shape[-1] for r in replies.values())
    last = torch.zeros(len(owner.parties), len(owner.labels), width) if before is None else before
    rows = []
    for i, m in enumerate(owner.parties):
        block = (values(replies[m]) if m in replies else last[i]).to(owner.device)
        rows.append(nn.functional.pad(block, (0, width - block.shape[-1])))
    return torch.stack(rows)


def class_means(settings: "ProtoEVFL", owner: LabelOwner, f: Tensor) -> tuple[Tensor, Tensor]:
    """Class means (M, Z, width) of the outputs and class counts (M, Z)."""
    out = f[..., : _output_width(settings, f)]
    if settings.rounds.adapted and isinstance(owner.head, HeadNet):
        out = owner.head.adapt(f[None]).mean(0).detach()[..., : _output_width(settings, f)]
    return prototypes.class_means(out, owner.labels.expand(len(f), -1), owner.classes)


def _output_width(settings: "ProtoEVFL", f: Tensor) -> int:
    """The output comes first among the layers that are sent."""
    return min(settings.width, f.shape[-1])


def _fit_head(settings: "ProtoEVFL", owner: LabelOwner, f: Tensor) -> dict[str, Any]:
    """The paper's round: the head goes on from where it was; its loss and gradient norm are
    reported."""
    keys = owner.keys("head", settings.head.members)
    before = owner.head if isinstance(owner.head, HeadNet) else None
    net = train_head(keys, f, owner.labels, owner.classes, settings.head, start=before)
    owner.head = net
    logits = net(f.expand(len(keys), -1, -1, -1))  # (E, N, Z)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), owner.labels.repeat(len(keys)))
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    return {
        "loss": loss.detach(),
        "gradient_norm": torch.stack([g.norm() for g in gradients]).norm(),
    }


def held_out(settings: "ProtoEVFL", owner: LabelOwner, f: Tensor) -> float:
    """Accuracy of prototypes of one part of the aligned rows on the other part, mean over
    parties."""
    train, test = owner.holdout(settings.rounds.holdout)
    if not len(test):
        return 0.0
    out = f[..., : _output_width(settings, f)]
    mu, counts = prototypes.class_means(
        out[:, train], owner.labels[train].expand(len(f), -1), owner.classes
    )
    scores = transport.cosine(out[:, test], mu) - 9.0 * (counts[:, None] == 0)
    return float((scores.argmax(-1) == owner.labels[test]).float().mean())


def _effective_ranks(settings: "ProtoEVFL", f: Tensor) -> Tensor:
    """Effective ranks (M,) of the outputs; zero where a value is not finite."""
    out = f[..., : _output_width(settings, f)]
    finite = out.isfinite().flatten(1).all(1)
    return metrics.effective_rank(torch.where(finite[:, None, None], out, 0.0))


def guard(
    settings: "ProtoEVFL",
    owner: LabelOwner,
    f: Tensor,
    mu: Tensor,
    shown: Tensor,
    peak: Tensor,
    learned: Sequence[int],
) -> Tensor:
    """The largest ranks (M,) so far. Stops where training made the embeddings of a party
    collapse: values that are not finite, or a rank that fell to one direction, or to one class
    for all rows. A party with one column never had a rank above two: only a fall counts.

    peak      (M,) the largest rank so far
    learned   parties that trained in this round
    """
    if not settings.rounds.guard:
        return peak
    out = f[..., : mu.shape[-1]]
    ranks = _effective_ranks(settings, f)
    guess = (transport.cosine(out, mu) - 9.0 * (shown[:, None] == 0)).argmax(-1)
    for i, m in enumerate(owner.parties):
        if m not in learned:
            continue
        one_class = shown[i].sum() > 1 and len(set(guess[i].tolist())) < 2
        # few rows alone may give one class at a healthy rank
        low = ranks[i] < 2 or (one_class and ranks[i] < 5)
        if (low and ranks[i] < peak[i] / 2) or not bool(out[i].isfinite().all()):
            raise UserError(
                f"training with prototypes made the embeddings of {owner.name_of(m)} collapse "
                f"(effective rank {float(ranks[i]):.1f}, before {float(peak[i]):.1f}); lower "
                "rounds.weight or rounds.lr under [method.overrides], or leave these rounds out: "
                'preset = "one_way" under [method]'
            )
    return torch.maximum(peak, ranks)
