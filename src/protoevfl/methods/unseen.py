"""Unseen and rare classes: what a party says about the uncovered part of its pool, and how the owner uses it.

Party: a mixture of the part of its pool that no aligned row covers, and one of the whole pool; no row crosses.
Owner, inductive: synthetic rows for the class that has no label, party by party independently.
Owner, on a batch to be predicted: uncovered rows are found again in the joint embedding of the rows to be predicted,
where all parties speak of the same person. Two folds: the head that predicts a row never saw that row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import novelty, transport
from protoevfl.core import random as rnd
from protoevfl.head import Drawn, HeadSettings, each, train_head
from protoevfl.messages import Statistics
from protoevfl.owner import LabelOwner
from protoevfl.party import Cohort

INVENTED = 2048  # synthetic rows a class, drawn from again and again
CLEAR = 3.2  # strength from which a party's finding is taken narrowly, else broadly


@dataclass(frozen=True)
class UnseenSettings:
    components: int = 40  # of the mixture a party sends
    pool_rows: int = 10_000  # at most so many pool rows are looked at
    groups: int = 8  # clusters within which novelty is centred
    slot: bool = True  # off: classes that lack labels are left alone, to compare with
    rows: float = 1.0  # synthetic rows of a class, as a share of those it lacks to be as frequent as the others
    batch: bool = True  # look again in the rows to be predicted
    batch_rows: int = 5_000  # at most so many of them a fold
    least_rows: int = 200  # fewer rows to be predicted: the inductive head decides
    batch_bar: float = 3.3  # strength in the batch from which an unknown class is believed
    pool_bar: float = 3.6  # strength in a pool from which it is


# ---------------------------------------------------------------- at a party


@torch.no_grad()
def describe(cohort: Cohort, f_pool: Tensor, f_aligned: Tensor, groups: int, settings: UnseenSettings) -> Statistics:
    """`groups` mixtures of the uncovered part and, last, one of the whole pool; reliability is the strength."""
    width, keys = int(cohort.net.width), rnd.derive(cohort.keys, "describe")  # type: ignore[arg-type]
    if f_pool.shape[1] > settings.pool_rows:
        some = rnd.permutation(keys, "subset", 0, f_pool.shape[1])[:, : settings.pool_rows]
        f_pool = f_pool.gather(1, some[..., None].expand(-1, -1, f_pool.shape[-1]))
    k = min(settings.components, f_pool.shape[1])
    whole = novelty.mixture(f_pool, torch.ones_like(f_pool[..., 0]), keys, k, width)
    parts, strength = [whole], torch.zeros(len(keys), 1, device=keys.device)
    if groups:
        found = novelty.novelty(f_pool[..., :width], f_aligned[..., :width], keys, groups=settings.groups)
        clear = novelty.strength(found)  # (G,)
        weight = novelty.members(found, torch.where(clear > CLEAR, 3.0, 1.5))
        side = _sides(f_pool[..., :width], weight, groups, rnd.derive(keys, "groups"))
        parts = [novelty.mixture(f_pool, weight * (side == j), keys, k, width) for j in range(groups)] + parts
        strength = torch.cat([clear[:, None].expand(-1, groups), strength], 1)
    means, variances, weights = (torch.stack(piece, 1) for piece in zip(*parts, strict=True))
    return Statistics(means, variances, weights, strength)


def _sides(f: Tensor, weight: Tensor, groups: int, keys: Tensor) -> Tensor:
    """Which of the unseen groups a row (G, n) would belong to."""
    if groups == 1:
        return torch.zeros(f.shape[:2], dtype=torch.int64, device=f.device)
    return novelty.clusters(transport.unit(f), groups, keys, weight)[0]


# ---------------------------------------------------------------- at the owner


def per_class(owner: LabelOwner) -> int:
    """Rows of a class that is neither unseen nor rare."""
    counts = torch.bincount(owner.labels, minlength=owner.classes)
    usual = [int(counts[z]) for z in range(owner.classes) if z not in owner.unseen + owner.rare]
    return max(1, round(sum(usual) / max(1, len(usual))))


def synthetic(owner: LabelOwner, told: Sequence[Statistics], f: Tensor, width: int, share: float = 1.0) -> list[Drawn]:
    """Synthetic rows for each unseen and rare class from the parties' statistics; f (M, N, d) aligned embeddings."""
    means, variances = torch.stack([t.means for t in told]), torch.stack([t.variances for t in told])  # (M, g, K, d)
    weights = torch.stack([t.weights for t in told])  # (M, g, K)
    made = [
        invent(owner, z, means[:, g], variances[:, g], weights[:, g], share)
        for g, z in enumerate(owner.unseen[: means.shape[1] - 1])
    ]
    for z in owner.rare:
        belong = class_share(f[..., :width], owner.labels, means[:, -1, :, :width], owner.classes, z)  # (M, K)
        made.append(invent(owner, z, means[:, -1], variances[:, -1], weights[:, -1] * belong.square(), share))
    return made


def invent(owner: LabelOwner, z: int, means: Tensor, variances: Tensor, weights: Tensor, share: float = 1.0) -> Drawn:
    """INVENTED rows of class z from mixtures (M, K, d), (M, K); parties independently: theirs are different people."""
    m, k, d = means.shape
    keys = owner.keys(f"invent {z}")
    u = rnd.uniform(keys, "component", 0, (m, INVENTED))[0]  # (M, n)
    edges = (weights + 1e-12).cumsum(-1)
    pick = torch.searchsorted(edges / edges[:, -1:], u).clamp(max=k - 1)[..., None].expand(-1, -1, d)
    noise = rnd.normal(keys, "synthetic", 0, (m, INVENTED, d))[0]
    rows = means.gather(1, pick) + variances.gather(1, pick).clamp(min=0).sqrt() * noise
    return Drawn(z, missing_rows(owner, z, share), rows, torch.ones(INVENTED, device=rows.device))


def class_share(f: Tensor, labels: Tensor, x: Tensor, classes: int, z: int, temperature: float = 0.1) -> Tensor:
    """P(class z | x) by kernels around labelled rows: f (M, N, d), x (M, K, d) -> (M, K); classes count equally."""
    onehot = F.one_hot(labels, classes).float()
    onehot = onehot / onehot.sum(0).clamp(min=1)
    density = ((transport.cosine(x, f) - 1) / temperature).exp() @ onehot  # (M, K, Z)
    return density[..., z] / density.sum(-1).clamp(min=1e-12)


@dataclass(frozen=True)
class Batch:
    """Joint embeddings f (M, n, d) of one fold of the rows to be predicted, and the strength of what is uncovered."""

    f: Tensor
    found: novelty.Novelty


def look(f_query: Tensor, f: Tensor, width: int, keys: Tensor) -> Batch:
    """Novelty in the joint space of all parties: queries (M, n, d) against aligned rows f (M, N, d)."""

    return Batch(f_query, novelty.novelty(joint(f_query, width), joint(f, width), keys, groups=1))


def joint(f: Tensor, width: int) -> Tensor:
    """Embeddings (M, n, d) of all parties side by side, outputs only: (1, n, M*width)."""
    return f[..., :width].movedim(0, 1).flatten(1)[None]


def bar_of(batch: Batch) -> Tensor:
    """Half way between 3 standard deviations and the mean of the top 2 % of scores, at least 3."""
    top = batch.found.pool.topk(max(1, batch.found.pool.shape[1] // 50), dim=1).values.mean(1)
    return torch.maximum(torch.full_like(top, 3.0), (3 + top) / 2)


def batch_weights(owner: LabelOwner, f: Tensor, f_query: Tensor, width: int, names: Sequence[int]) -> Tensor:
    """How much each row (n,) of a batch stands for each unseen or rare class -> (names, n)."""
    keys = owner.keys("batch")
    hidden = torch.isin(owner.labels, torch.tensor(owner.rare, dtype=torch.int64, device=owner.device))
    batch = look(f_query, f[:, ~hidden], width, keys)
    weight = novelty.members(batch.found, bar_of(batch))  # (1, n)
    near = joint(f_query, width)
    if owner.rare:
        shares = [class_share(joint(f, width), owner.labels, near, owner.classes, z) for z in names]
        return weight * torch.cat(shares).square() + 1e-12
    side = _sides(near, weight, len(names), keys)
    return torch.cat([weight * (side == g) for g in range(len(names))]) + 1e-12


def predict_batch(
    owner: LabelOwner, f: Tensor, f_query: Tensor, width: int, settings: HeadSettings, unseen: UnseenSettings
) -> Tensor:
    """Class probabilities (n, Z) of a batch in two folds: the head of one fold is trained with rows of the other.

    The heads of both folds are members of one batched model. After a first training the rows are chosen again, by
    the heads' own probability of the class (self-training), and the heads are trained once more.
    """
    names, n = owner.unseen + owner.rare, f_query.shape[1]
    fold = rnd.permutation(owner.keys("fold"), "fold", 0, n)[0] % 2
    sides = [(fold == k).nonzero()[:, 0][: unseen.batch_rows] for k in (0, 1)]
    rows, per_fold = torch.cat(sides), settings.members
    half = torch.arange(2, device=f.device).repeat_interleave(per_fold)  # the fold whose rows a member is trained with
    seen = (torch.arange(len(rows), device=f.device) >= len(sides[0])).long() == half[:, None]  # (2E, rows)
    first = [batch_weights(owner, f, f_query[:, side], width, names) for side in sides]
    together = [joint(f_query[:, side], width)[0] for side in sides]
    first = agree(first, together, owner, joint(f_query, width)[0], joint(f, width)[0])
    weights = torch.cat(first, 1)[:, None] * seen  # (names, 2E, rows)
    some = f_query[:, rows]
    for turn in (1, 2):
        drawn = [Drawn(z, missing_rows(owner, z, unseen.rows), some, weights[i]) for i, z in enumerate(names)]
        keys = owner.keys(f"batch heads {turn}", 2 * per_fold)
        head = train_head(keys, f, owner.labels, owner.classes, settings, drawn)
        if turn == 1:
            weights = again(each(head, some), weights, seen, names)
    p = each(head, f_query)  # (2E, n, Z)
    return torch.where((fold == 0)[:, None], p[half == 1].mean(0), p[half == 0].mean(0))


def again(p: Tensor, weights: Tensor, seen: Tensor, names: Sequence[int]) -> Tensor:
    """Self-training weights (names, 2E, rows): the rows a fold's heads give to the class, by their probability."""
    made = []
    for i, z in enumerate(names):
        both = [p[: len(p) // 2].mean(0), p[len(p) // 2 :].mean(0)]
        own = torch.cat([(q[:, z] * (q.argmax(1) == z)).expand(len(p) // 2, -1) for q in both])  # (2E, rows)
        own = own * seen
        made.append(torch.where(own.sum(1, keepdim=True) > 0, own, weights[i]))
    return torch.stack(made)


def agree(found: list[Tensor], rows: list[Tensor], owner: LabelOwner, queries: Tensor, aligned: Tensor) -> list[Tensor]:
    """The groups (names, n) of both folds in one order, by their weighted means; named where the owner can tell.

    Groups of two folds are matched by similarity (Hungarian). Which group has which name cannot be learned from the
    data: it is told by attributes of the classes (`owner.attributes`) and, before them, by an example row of a class
    (`owner.examples`), which takes the group most like it. Joint embeddings: queries (n, D), aligned (N, D).
    """
    if len(owner.unseen) < 2:
        return found
    means = [w @ x / w.sum(1, keepdim=True) for w, x in zip(found, rows, strict=True)]  # (groups, D)
    other = _match(transport.unit(means[0]) @ transport.unit(means[1]).T)
    found, means = [found[0], found[1][other]], [means[0], means[1][other]]
    wish = fit_of_attributes(owner, aligned, (means[0] + means[1]) / 2)  # (name, group)
    if told := [i for i, z in enumerate(owner.unseen) if z in owner.examples]:
        shown = transport.unit(queries[[owner.examples[owner.unseen[i]] for i in told]])
        taken = _match(shown @ (transport.unit(means[0]) + transport.unit(means[1])).T)
        wish[told] = -torch.inf
        wish[told, taken] = 0.0
    order = _match(wish)
    return [w[order] for w in found]


def fit_of_attributes(owner: LabelOwner, aligned: Tensor, groups: Tensor, ridge: float = 100.0) -> Tensor:
    """How well each unseen class (rows) fits each group (columns) by its attributes; zeros where none are given.

        W = argmin_W  sum_i |a_y(i) - W (f_i - f)|^2 + ridge s |W|^2,      fit[z, g] = a_z . W (x_g - f)

    f_i, y(i): joint embedding (D,) and class of aligned row i; f: mean of the f_i; s: mean eigenvalue of their scatter;
    x_g: mean of group g; a_z: attributes (K,) of class z, standardised over the classes. In a bijection the largest sum
    of inner products is the smallest sum of squared distances, and an intercept changes nothing.
    """
    if owner.attributes is None:
        return torch.zeros(len(owner.unseen), len(groups), device=groups.device)
    a = owner.attributes.to(groups)
    a = (a - a.mean(0)) / a.std(0, correction=0).clamp(min=1e-6)
    middle = aligned.mean(0)
    x = aligned - middle
    scatter = x.T @ x  # (D, D)
    penalty = ridge * scatter.diagonal().mean().clamp(min=1e-6) * torch.eye(len(scatter), device=x.device)
    w: Tensor = torch.linalg.solve(scatter + penalty, x.T @ a[owner.labels])  # (D, K)
    return a[list(owner.unseen)] @ ((groups - middle) @ w).T


def _match(similarity: Tensor) -> Tensor:
    """The best bijection: row i goes with column order[i]."""
    from scipy.optimize import linear_sum_assignment

    order = linear_sum_assignment(similarity.cpu().numpy(), maximize=True)[1]
    return torch.as_tensor(order, device=similarity.device)


def missing_rows(owner: LabelOwner, z: int, share: float = 1.0) -> int:
    """A share of the rows class z lacks to be as frequent as the others."""
    return max(1, round(share * (per_class(owner) - int((owner.labels == z).sum()))))
