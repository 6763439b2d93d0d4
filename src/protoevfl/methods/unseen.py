"""Unseen and rare classes: what a party says about the uncovered part of its pool, and how the
owner uses it.

Party: a mixture of the part of its pool that no aligned row covers, and one of the whole pool; no
row crosses. Owner: synthetic rows for the class that has no label, party by party independently.
What the rows to be predicted show on top is in `batch.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import novelty, transport
from protoevfl.core import random as rnd
from protoevfl.federation.owner import FEW, LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.head import Drawn
from protoevfl.messages import Statistics

INVENTED = 2048  # synthetic rows a class, drawn from again and again
CLEAR = 3.2  # strength from which a party's finding is taken narrowly, else broadly


@dataclass(frozen=True)
class UnseenSettings:
    components: int = 40  # of the mixture a party sends
    pool_rows: int = 10_000  # at most so many pool rows are looked at
    groups: int = 8  # clusters within which novelty is centred
    slot: bool = True  # off: classes that lack labels are left alone, to compare with
    few_labels: bool = (
        True  # off: a class with a few labels is no reason to look, one without any is
    )
    batch: bool = True  # look again in the rows to be predicted
    # what a row of the batch counts against an aligned one, before classes are made equal
    self_training: float = 0.0
    turns: int = 2  # of self-training
    kernel_width: float = 1.0  # of the regression, in median squared distances of the aligned rows
    batch_rows: int = 5_000  # at most so many of them a fold, and as many aligned ones
    # fewer rows to be predicted: what an earlier batch taught decides, else the head
    least_rows: int = 200
    kept_rows: int = 1_000  # of a batch, for single rows later
    open_bar: float = 1.32  # evidence from which a class nobody named is believed


# ---------------------------------------------------------------- at a party


@torch.no_grad()
def describe(
    cohort: Cohort, f_pool: Tensor, f_aligned: Tensor, groups: int, settings: UnseenSettings
) -> Statistics:
    """`groups` mixtures of the uncovered part and, last, one of the whole pool; reliability is the
    strength."""
    width, keys = int(cohort.net.width), rnd.derive(cohort.keys, "describe")  # type: ignore[arg-type]
    if f_pool.shape[1] > settings.pool_rows:
        some = rnd.permutation(keys, "subset", 0, f_pool.shape[1])[:, : settings.pool_rows]
        f_pool = f_pool.gather(1, some[..., None].expand(-1, -1, f_pool.shape[-1]))
    least = cohort.least_component_rows
    # components that could have twice the fewest rows each: most of them then have enough
    most = f_pool.shape[1] // (2 * least) if least else f_pool.shape[1]
    k = max(1, min(settings.components, most))

    def mixed(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        means, variances, weights = novelty.mixture(f_pool, weight, keys, k, width)
        if least:  # the mean of very few rows is nearly a row
            enough = weights * weight.sum(1, keepdim=True) >= least - 1e-3  # (G, k)
            means, variances = means * enough[..., None], variances * enough[..., None]
            weights = weights * enough
            weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-12)
            # as many components from every party, whatever the size of its pool
            lacking = min(settings.components, f_pool.shape[1]) - k
            means, variances = (F.pad(x, (0, 0, 0, lacking)) for x in (means, variances))
            weights = F.pad(weights, (0, lacking))
        return means, variances, weights

    parts = [mixed(torch.ones_like(f_pool[..., 0]))]
    strength = torch.zeros(len(keys), 1, device=keys.device)
    if groups:
        found = novelty.novelty(
            f_pool[..., :width], f_aligned[..., :width], keys, groups=settings.groups
        )
        clear = novelty.strength(found)  # (G,)
        weight = novelty.members(found, torch.where(clear > CLEAR, 3.0, 1.5))
        side = sides(f_pool[..., :width], weight, groups, rnd.derive(keys, "groups"))
        parts = [mixed(weight * (side == j)) for j in range(groups)] + parts
        strength = torch.cat([clear[:, None].expand(-1, groups), strength], 1)
    means, variances, weights = (torch.stack(piece, 1) for piece in zip(*parts, strict=True))
    return Statistics(means, variances, weights, strength)


def sides(f: Tensor, weight: Tensor, groups: int, keys: Tensor) -> Tensor:
    """Which of the unseen groups a row (G, n) would belong to."""
    if groups == 1:
        return torch.zeros(f.shape[:2], dtype=torch.int64, device=f.device)
    return novelty.clusters(transport.unit(f), groups, keys, weight)[0]


# ---------------------------------------------------------------- at the owner


def lacking(owner: LabelOwner, settings: UnseenSettings) -> bool:
    """Does a class lack labels, or may one, and is something to be done about it?

    A class with few labels among the shared rows lacks none where the active party's other rows
    show it.
    """
    few = {*owner.unseen, *(owner.rare if settings.few_labels else ())}
    if owner.own is not None:
        known = owner.own.labels[owner.own.labels >= 0]
        few -= set((torch.bincount(known) >= FEW).nonzero()[:, 0].tolist())
    return settings.slot and bool(few or owner.open)


def per_class(owner: LabelOwner) -> int:
    """Rows of a class that is neither unseen nor rare."""
    counts = torch.bincount(owner.labels, minlength=owner.classes)
    usual: list[int] = [
        n for z, n in enumerate(counts.tolist()) if n and z not in owner.unseen + owner.rare
    ]
    return max(1, round(sum(usual) / max(1, len(usual))))


def synthetic(owner: LabelOwner, told: Sequence[Statistics], f: Tensor, width: int) -> list[Drawn]:
    """Synthetic rows for each unseen and rare class from the parties' statistics; f (M, N, d)
    aligned embeddings."""
    # (M, g, K, d)
    means, variances = (
        torch.stack([t.means for t in told]),
        torch.stack([t.variances for t in told]),
    )
    weights = torch.stack([t.weights for t in told])  # (M, g, K)
    made = [
        invent(owner, z, means[:, g], variances[:, g], weights[:, g])
        for g, z in enumerate(owner.unseen[: means.shape[1] - 1])
    ]
    for z in owner.rare:
        # (M, K)
        belong = class_share(
            f[..., :width], owner.labels, means[:, -1, :, :width], owner.classes, z
        )
        made.append(
            invent(owner, z, means[:, -1], variances[:, -1], weights[:, -1] * belong.square())
        )
    return made


def invent(owner: LabelOwner, z: int, means: Tensor, variances: Tensor, weights: Tensor) -> Drawn:
    """INVENTED rows of class z from mixtures (M, K, d), (M, K); parties independently: theirs are
    different people."""
    m, k, d = means.shape
    keys = owner.keys(f"invent {z}")
    u = rnd.uniform(keys, "component", 0, (m, INVENTED))[0]  # (M, n)
    edges = (weights + 1e-12).cumsum(-1)
    pick = (
        torch.searchsorted(edges / edges[:, -1:], u).clamp(max=k - 1)[..., None].expand(-1, -1, d)
    )
    noise = rnd.normal(keys, "synthetic", 0, (m, INVENTED, d))[0]
    rows = means.gather(1, pick) + variances.gather(1, pick).clamp(min=0).sqrt() * noise
    return Drawn(z, missing_rows(owner, z), rows, torch.ones(INVENTED, device=rows.device))


def class_share(
    f: Tensor, labels: Tensor, x: Tensor, classes: int, z: int, temperature: float = 0.1
) -> Tensor:
    """P(class z | x) by kernels around labelled rows: f (M, N, d), x (M, K, d) -> (M, K); classes
    count equally."""
    onehot = F.one_hot(labels, classes).float()
    onehot = onehot / onehot.sum(0).clamp(min=1)
    density = ((transport.cosine(x, f) - 1) / temperature).exp() @ onehot  # (M, K, Z)
    return density[..., z] / density.sum(-1).clamp(min=1e-12)


def missing_rows(owner: LabelOwner, z: int) -> int:
    """The rows class z lacks to be as frequent as the others."""
    return max(1, per_class(owner) - int((owner.labels == z).sum()))
