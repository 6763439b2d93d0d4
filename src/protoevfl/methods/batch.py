"""What the rows to be predicted show: what the parties have in common, uncovered rows, and
self-training.

All parties speak of the same person there. So what several of them see of it can be told from what
each sees alone, without a label, and what no aligned row covers can be seen, which a party's own
pool cannot show. Two folds: what a row is thought to be does not teach the regression that predicts
it.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import canonical, novelty, ridge, transport
from protoevfl.core import random as rnd
from protoevfl.federation.owner import LabelOwner
from protoevfl.methods.unseen import UnseenSettings, class_share, missing_rows, sides


def look(f_query: Tensor, f: Tensor, width: int, keys: Tensor) -> novelty.Novelty:
    """Novelty in the joint space of all parties: queries (M, n, d) against aligned rows f (M, N,
    d)."""
    return novelty.novelty(joint(f_query, width), joint(f, width), keys, groups=1)


def joint(f: Tensor, width: int) -> Tensor:
    """Embeddings (M, n, d) of all parties side by side, outputs only: (1, n, M*width)."""
    return f[..., :width].movedim(0, 1).flatten(1)[None]


def bar_of(found: novelty.Novelty) -> Tensor:
    """Half way between 3 standard deviations and the mean of the top 2 % of scores, at least 3."""
    top = found.pool.topk(max(1, found.pool.shape[1] // 50), dim=1).values.mean(1)
    return torch.maximum(torch.full_like(top, 3.0), (3 + top) / 2)


def space(f: Tensor, width: int, rows: Tensor) -> Tensor:
    """Embeddings f (M, n, d) as points (n, D): what the parties have in common, found on some of
    the rows.

    Layers count equally: output (the first `width`) and the rest have length one each. Canonical
    correlations need more rows than an embedding has dimensions, and two parties; else principal
    components of all embeddings side by side.
    """
    layers = [f[..., :width], f[..., width:]] if f.shape[-1] > width else [f]
    f = torch.cat([transport.unit(layer) for layer in layers], -1)
    if len(f) > 1 and len(rows) > f.shape[-1]:
        x = (f @ canonical.directions(f[:, rows])).movedim(0, 1).flatten(1)
    else:
        x = f.movedim(0, 1).flatten(1)
        x = x @ canonical.principal(x[rows])
    return x - x[rows].mean(0)


def uncovered(owner: LabelOwner, aligned: Tensor, query: Tensor) -> Tensor:
    """How much each row of a batch stands for each unseen or rare class -> (names, n); points (N,
    D) and (n, D)."""
    keys, names, near = owner.keys("batch"), owner.unseen + owner.rare, query[None]
    hidden = torch.isin(
        owner.labels, torch.tensor(owner.rare, dtype=torch.int64, device=owner.device)
    )
    found = novelty.novelty(near, aligned[None, ~hidden], keys, groups=1)
    weight = novelty.members(found, bar_of(found))  # (1, n)
    if owner.rare:
        shares = [class_share(aligned[None], owner.labels, near, owner.classes, z) for z in names]
        return weight * torch.cat(shares).square() + 1e-12
    side = sides(near, weight, len(names), keys)
    return torch.cat([weight * (side == g) for g in range(len(names))]) + 1e-12


def predict_batch(
    owner: LabelOwner, f: Tensor, f_query: Tensor, here: Tensor, width: int, unseen: UnseenSettings
) -> Tensor:
    """Class probabilities (n, Z) of a batch by kernel ridge regression in the space its rows have
    in common.

    First the aligned rows teach, and rows nobody covers stand for the classes that lack labels:
    fully for an unseen one, half (the mean of with and without) for a rare one. Then the batch
    teaches too, each row with the probabilities it was given (self-training). Parties that are not
    `here` (M,) are left out.
    """
    if len(owner.labels) > unseen.batch_rows:  # time grows with the cube of the rows
        some = rnd.permutation(owner.keys("labels"), "rows", 0, len(owner.labels))[0][
            : unseen.batch_rows
        ]
        owner, f = replace(owner, labels=owner.labels[some]), f[:, some]
    known, n, device = len(owner.labels), f_query.shape[1], f.device
    order = rnd.permutation(owner.keys("fold"), "fold", 0, n)[0]
    fold = order % 2
    # those that teach
    halves = [((fold == k) & (order < 2 * unseen.batch_rows)).nonzero()[:, 0] for k in (0, 1)]
    both = torch.cat([torch.arange(known, device=device), *(known + half for half in halves)])
    x = space(torch.cat([f[here], f_query[here]], 1), width, both)
    aligned, query = x[:known], x[known:]
    labels, apart = (
        F.one_hot(owner.labels, owner.classes).float(),
        unseen.kernel_width * ridge.spread(aligned),
    )

    def taught(shares: Sequence[Tensor]) -> Tensor:
        """Probabilities (n, Z): rows of a fold teach the other, in so far as they stand for each
        class (rows, Z)."""
        p = labels.new_zeros(n, owner.classes)
        for k, (half, share) in enumerate(zip(halves, shares, strict=True)):
            total = share.sum(1)
            some = total > 1e-4 * total.max()  # others would cost time and teach nothing
            y = torch.cat([labels, share[some] / total[some, None]])
            weight = torch.cat([labels.new_ones(known), total[some]])
            model = ridge.fit(torch.cat([aligned, query[half[some]]]), y, weight, apart)
            p[fold != k] = ridge.predict(model, query[fold != k])
        return p

    shares = [labels.new_zeros(len(half), owner.classes) for half in halves]
    if names := owner.unseen + owner.rare:
        found = [uncovered(owner, aligned, query[half]) for half in halves]
        found = agree(found, [query[half] for half in halves], owner, query, aligned)
        lacks = torch.tensor([[missing_rows(owner, z)] for z in names], device=device)
        for share, weights in zip(shares, found, strict=True):
            share[:, list(names)] = (lacks * weights / weights.sum(1, keepdim=True)).T
    p = taught(shares)
    # that uncovered rows are of a rare class is a guess: half the belief to its labels
    if rare := list(owner.rare):
        p = (
            p
            + taught(
                [share.index_fill(1, torch.tensor(rare, device=device), 0.0) for share in shares]
            )
        ) / 2
    confidence = (p.log() * ridge.sureness(aligned, labels, apart)).softmax(1).amax(1).mean()
    for _ in range(unseen.turns if unseen.self_training else 0):
        sharp = p.square() / p.square().sum(1, keepdim=True)
        p = taught([unseen.self_training * sharp[half] for half in halves])
    return ridge.as_sure(p, confidence)  # self-training makes surer than it makes better


def agree(
    found: list[Tensor], rows: list[Tensor], owner: LabelOwner, queries: Tensor, aligned: Tensor
) -> list[Tensor]:
    """The groups (names, n) of both folds in one order, by their weighted means; named where the
    owner can tell.

    Groups of two folds are matched by similarity (Hungarian). Which group has which name cannot be
    learned from the data: it is told by attributes of the classes (`owner.attributes`) and, before
    them, by an example row of a class (`owner.examples`), which takes the group most like it. Joint
    embeddings: queries (n, D), aligned (N, D).
    """
    if len(owner.unseen) < 2:
        return found
    # (groups, D)
    means = [w @ x / w.sum(1, keepdim=True) for w, x in zip(found, rows, strict=True)]
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


def fit_of_attributes(
    owner: LabelOwner, aligned: Tensor, groups: Tensor, ridge: float = 100.0
) -> Tensor:
    """How well each unseen class (rows) fits each group (columns) by its attributes; zeros where
    none are given.

        W = argmin_W  sum_i |a_y(i) - W (f_i - f)|^2 + ridge s |W|^2,      fit[z, g] = a_z . W (x_g - f)

    f_i, y(i): joint embedding (D,) and class of aligned row i; f: mean of the f_i; s: mean
    eigenvalue of their scatter; x_g: mean of group g; a_z: attributes (K,) of class z, standardised
    over the classes. In a bijection the largest sum of inner products is the smallest sum of
    squared distances, and an intercept changes nothing.
    """
    if owner.attributes is None:
        return torch.zeros(len(owner.unseen), len(groups), device=groups.device)
    a = owner.attributes.to(groups)
    a = (a - a.mean(0)) / a.std(0, correction=0).clamp(min=1e-6)
    middle = aligned.mean(0)
    x = aligned - middle
    scatter = x.T @ x  # (D, D)
    penalty = (
        ridge * scatter.diagonal().mean().clamp(min=1e-6) * torch.eye(len(scatter), device=x.device)
    )
    w: Tensor = torch.linalg.solve(scatter + penalty, x.T @ a[owner.labels])  # (D, K)
    return a[list(owner.unseen)] @ ((groups - middle) @ w).T


def _match(similarity: Tensor) -> Tensor:
    """The best bijection: row i goes with column order[i]."""
    from scipy.optimize import linear_sum_assignment

    order = linear_sum_assignment(similarity.cpu().numpy(), maximize=True)[1]
    return torch.as_tensor(order, device=similarity.device)
