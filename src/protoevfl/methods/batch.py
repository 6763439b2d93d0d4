"""What the rows to be predicted show: uncovered rows for classes that lack labels, and self-training.

All parties speak of the same person there, so that what no aligned row covers is seen in their joint embedding, which
a party's own pool cannot show. Two folds: the head that predicts a row never learned from that row.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import torch
from torch import Tensor

from protoevfl.core import novelty, transport
from protoevfl.core import random as rnd
from protoevfl.head import Drawn, HeadNet, HeadSettings, each, train_head
from protoevfl.methods.unseen import UnseenSettings, class_share, missing_rows, sides
from protoevfl.owner import LabelOwner


def look(f_query: Tensor, f: Tensor, width: int, keys: Tensor) -> novelty.Novelty:
    """Novelty in the joint space of all parties: queries (M, n, d) against aligned rows f (M, N, d)."""
    return novelty.novelty(joint(f_query, width), joint(f, width), keys, groups=1)


def joint(f: Tensor, width: int) -> Tensor:
    """Embeddings (M, n, d) of all parties side by side, outputs only: (1, n, M*width)."""
    return f[..., :width].movedim(0, 1).flatten(1)[None]


def bar_of(found: novelty.Novelty) -> Tensor:
    """Half way between 3 standard deviations and the mean of the top 2 % of scores, at least 3."""
    top = found.pool.topk(max(1, found.pool.shape[1] // 50), dim=1).values.mean(1)
    return torch.maximum(torch.full_like(top, 3.0), (3 + top) / 2)


def uncovered(owner: LabelOwner, f: Tensor, f_query: Tensor, width: int, names: Sequence[int]) -> Tensor:
    """How much each row (n,) of a batch stands for each unseen or rare class -> (names, n)."""
    keys = owner.keys("batch")
    hidden = torch.isin(owner.labels, torch.tensor(owner.rare, dtype=torch.int64, device=owner.device))
    found = look(f_query, f[:, ~hidden], width, keys)
    weight = novelty.members(found, bar_of(found))  # (1, n)
    near = joint(f_query, width)
    if owner.rare:
        shares = [class_share(joint(f, width), owner.labels, near, owner.classes, z) for z in names]
        return weight * torch.cat(shares).square() + 1e-12
    side = sides(near, weight, len(names), keys)
    return torch.cat([weight * (side == g) for g in range(len(names))]) + 1e-12


def predict_batch(
    owner: LabelOwner, f: Tensor, f_query: Tensor, here: Tensor, width: int, head: HeadSettings, unseen: UnseenSettings
) -> Tensor:
    """Class probabilities (n, Z) of a batch in two folds: the heads that predict a fold learn from rows of the other.

    First the classes that lack labels get rows nobody covers, and heads are trained; where none lacks labels the owner
    has a trained head already. Then rows are chosen by these heads' own probabilities (self-training), of the classes
    that lack labels or of all, and the heads are trained anew. All heads are members of one batched model; parties that
    are not `here` (M,) are left out of it.
    """
    names, n = owner.unseen + owner.rare, f_query.shape[1]
    fold = folds(owner, n)
    halves = [(fold == k).nonzero()[:, 0][: unseen.batch_rows] for k in (0, 1)]
    rows = torch.cat(halves)
    taught = torch.arange(2, device=f.device).repeat_interleave(head.members)  # the fold a member learns from
    allowed = (torch.arange(len(rows), device=f.device) >= len(halves[0])).long() == taught[:, None]  # (2E, rows)
    aligned, query = f[here], f_query[here]
    some = query[:, rows]

    def train(turn: int, classes: Sequence[int], weights: Tensor, more: float = 0.0) -> HeadNet:
        lacks = tuple(missing_rows(owner, z, more) for z in classes)
        n, b = len(owner.labels), head.batch
        share = ceil(n / b) / ceil((n + sum(lacks)) / b) if more else 1.0  # as many steps as without the drawn rows
        settings = replace(head, epochs=max(1, round(share * head.epochs)))
        keys = owner.keys(f"batch heads {turn}", len(taught))
        drawn = Drawn(tuple(classes), lacks, some, weights)
        return train_head(keys, aligned, owner.labels, owner.classes, settings, [drawn])

    if names:
        first = [uncovered(owner, aligned, query[:, half], width, names) for half in halves]
        together = [joint(query[:, half], width)[0] for half in halves]
        first = agree(first, together, owner, joint(query, width)[0], joint(aligned, width)[0])
        weights = torch.cat(first, 1)[:, None] * allowed  # (names, 2E, rows)
        p = each(train(1, names, weights), some)
    else:
        assert isinstance(owner.head, HeadNet)
        weights = torch.zeros(0, *allowed.shape, device=f.device)
        p = each(owner.head, f_query[:, rows], here).repeat(2, 1, 1)
    labelled = sorted(set(owner.labels.tolist()) - set(names)) if unseen.self_training else []
    chosen = [*names, *labelled]
    net = train(2, chosen, again(p, weights, allowed, chosen), unseen.self_training)
    p = each(net, query)  # (2E, n, Z)
    return torch.where((fold == 0)[:, None], p[taught == 1].mean(0), p[taught == 0].mean(0))


def folds(owner: LabelOwner, n: int) -> Tensor:
    """The fold (n,), 0 or 1, of each row of a batch."""
    return rnd.permutation(owner.keys("fold"), "fold", 0, n)[0] % 2


def again(p: Tensor, weights: Tensor, allowed: Tensor, classes: Sequence[int]) -> Tensor:
    """Self-training weights (classes, 2E, rows): the rows a fold's heads give to a class, by their probability.

    Where they give it none: the weights of before (the first classes have some), else its probability in all rows.
    """
    made, fold = [], torch.stack([half.mean(0) for half in p.chunk(2)])  # (2, rows, Z)
    guess = fold.argmax(-1)
    for i, z in enumerate(classes):
        all_rows = fold[..., z].repeat_interleave(len(p) // 2, 0) * allowed
        own = (fold[..., z] * (guess == z)).repeat_interleave(len(p) // 2, 0) * allowed
        made.append(torch.where(own.sum(1, keepdim=True) > 0, own, weights[i] if i < len(weights) else all_rows))
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
