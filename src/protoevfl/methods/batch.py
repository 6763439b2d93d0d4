"""What the rows to be predicted show: what the parties have in common, uncovered rows, and
self-training.

All parties speak of the same person there. So what several of them see of it can be told from what
each sees alone, without a label, and what no aligned row covers can be seen, which a party's own
pool cannot show. Two folds: what a row is thought to be does not teach the regression that predicts
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import canonical, novelty, ridge, transport
from protoevfl.core import random as rnd
from protoevfl.federation.owner import LabelOwner
from protoevfl.methods.guesses import (
    Found,
    best_guess,
    best_match,
    class_rates,
    evened,
    far_bar,
    sharpened,
)
from protoevfl.methods.unseen import UnseenSettings, class_share, missing_rows


@dataclass(frozen=True)
class Space:
    """What parties have in common: a linear map of their embeddings.

    maps (M, d, k)   side by side for each party where `common`, else added up over the parties
    centre (D,)      the mean of the rows it was found on
    """

    maps: Tensor
    centre: Tensor
    common: bool

    def points(self, f: Tensor, width: int) -> Tensor:
        """Embeddings f (M, n, d) as points (n, D)."""
        each = layers_alike(f, width) @ self.maps  # (M, n, k)
        return (each.movedim(0, 1).flatten(1) if self.common else each.sum(0)) - self.centre


def layers_alike(f: Tensor, width: int) -> Tensor:
    """Layers count equally: output (the first `width`) and the rest have length one each."""
    layers = [f[..., :width], f[..., width:]] if f.shape[-1] > width else [f]
    return torch.cat([transport.unit(layer) for layer in layers], -1)


def space(f: Tensor, width: int) -> Space:
    """The space that the parties' embeddings f (M, n, d) of the same rows have in common.

    Canonical correlations need more rows than an embedding has dimensions, and two parties; else
    principal components of all embeddings side by side.
    """
    alike = layers_alike(f, width)
    common = len(f) > 1 and f.shape[1] > f.shape[-1]
    if common:
        maps = canonical.directions(alike)
    else:
        maps = canonical.principal(alike.movedim(0, 1).flatten(1)).view(len(f), f.shape[-1], -1)
    nowhere = Space(maps, f.new_zeros(()), common)
    return replace(nowhere, centre=nowhere.points(f, width).mean(0))


def far_rows(owner: LabelOwner, aligned: Tensor, query: Tensor) -> Tensor:
    """(n,) 0 to 1: rows of a batch that no labelled row covers; points (N, D) and (n, D). Rows of
    rare classes do not count as labelled."""
    rare = torch.tensor(owner.rare, dtype=torch.int64, device=owner.device)
    known = aligned[~torch.isin(owner.labels, rare)]
    scores = novelty.novelty(query[None], known[None], owner.keys("batch"), groups=1)
    return novelty.members(scores, far_bar(scores))[0] + 1e-12


def rare_rows(owner: LabelOwner, aligned: Tensor, query: Tensor) -> Tensor:
    """(n, Z) how much each row of a batch stands for each rare class."""
    weight = far_rows(owner, aligned, query)
    stands = query.new_zeros(len(query), owner.classes)
    for z in owner.rare:
        share = class_share(aligned[None], owner.labels, query[None], owner.classes, z)[0]
        stands[:, z] = as_many_as_lack(owner, z, weight * share.square() + 1e-12)
    return stands


def as_many_as_lack(owner: LabelOwner, z: int, weight: Tensor) -> Tensor:
    """Weights (n,) that add up to the rows class z lacks."""
    return missing_rows(owner, z) * weight / weight.sum().clamp(min=1e-9)


@dataclass(frozen=True)
class Batch:
    """Labelled rows and rows to be predicted, as points of the space they have in common.

    labels (N,), aligned (N, D)   not more than time allows
    query (n, D), fold (n,)       rows of one fold teach what rows of the other are
    halves                        of each fold the rows that teach
    """

    shared: Space
    labels: Tensor
    aligned: Tensor
    query: Tensor
    fold: Tensor
    halves: tuple[Tensor, Tensor]

    @property
    def teachers(self) -> Tensor:
        return torch.cat(self.halves)


def batch_of(
    owner: LabelOwner, f: Tensor, f_query: Tensor, here: Tensor, width: int, unseen: UnseenSettings
) -> Batch:
    """Embeddings f (M, N, d) and f_query (M, n, d) of the parties that are `here` (M,)."""
    most, labels = unseen.batch_rows, owner.labels
    if len(labels) > most:  # time grows with the cube of the rows
        some = rnd.permutation(owner.keys("labels"), "rows", 0, len(labels))[0][:most]
        labels, f = labels[some], f[:, some]
    order = rnd.permutation(owner.keys("fold"), "fold", 0, f_query.shape[1])[0]
    fold = order % 2
    first, second = (((fold == k) & (order < 2 * most)).nonzero()[:, 0] for k in (0, 1))
    teachers = torch.cat([first, second])
    shared = space(torch.cat([f[here], f_query[here][:, teachers]], 1), width)
    aligned, query = shared.points(f[here], width), shared.points(f_query[here], width)
    return Batch(shared, labels, aligned, query, fold, (first, second))


def one_class_more(owner: LabelOwner) -> LabelOwner:
    """The owner with a class after the others that nobody labelled."""
    return replace(owner, classes=owner.classes + 1, unseen=(owner.classes,))


def guess_unseen(owner: LabelOwner, batch: Batch) -> Found:
    """The best guess of which rows of a batch are of classes without labels."""
    teachers = batch.teachers
    known = replace(owner, labels=batch.labels)
    return best_guess(known, batch.aligned, batch.query[teachers], batch.fold[teachers])


def unseen_rows(owner: LabelOwner, batch: Batch, guess: Found) -> list[Tensor]:
    """How much rows of each half of a batch stand for each class without labels, (rows, Z) each.

    The best guess counts as far as it is sure; for one class, rows nobody covers count for the
    rest.
    """
    owner.memory["unseen_sureness"] = guess.sureness
    aligned, query, teachers = batch.aligned, batch.query, batch.teachers
    named = guess.p[:, name_order(owner, guess, aligned, query, teachers)]
    said = query.new_zeros(len(query), owner.classes)
    said[teachers[guess.rows]] = sharpened(evened(named, class_rates(owner)))
    sure = guess.sureness if len(owner.unseen) == 1 else 1.0
    shares = []
    for half in batch.halves:
        share = query.new_zeros(len(half), owner.classes)
        for z in owner.unseen:
            share[:, z] = sure * as_many_as_lack(owner, z, said[half, z])
        if len(owner.unseen) == 1:
            far = far_rows(owner, aligned, query[half])
            share[:, owner.unseen[0]] += (1 - sure) * as_many_as_lack(owner, owner.unseen[0], far)
        shares.append(share)
    return shares


def predict_batch(
    owner: LabelOwner,
    batch: Batch,
    here: Tensor,
    unseen: UnseenSettings,
    guess: Found | None = None,
) -> Tensor:
    """Class probabilities (n, Z) of a batch by kernel ridge regression in the space its rows have
    in common.

    First the aligned rows teach, and rows nobody covers stand for the classes that lack labels:
    fully for an unseen one, half (the mean of with and without) for a rare one. Then the batch
    teaches too, each row with the probabilities it was given (self-training). `here` (M,): the
    parties it was made of; `guess`: of classes without labels, where it was made before.
    """
    owner = replace(owner, labels=batch.labels)
    aligned, query, fold, halves = batch.aligned, batch.query, batch.fold, batch.halves
    known, n, device = len(aligned), len(query), query.device
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
    if owner.unseen:
        guess = guess or guess_unseen(owner, batch)
        shares = unseen_rows(owner, batch, guess)
    elif owner.rare:
        shares = [rare_rows(owner, aligned, query[half]) for half in halves]
    p = taught(shares)
    # that uncovered rows are of a rare class is a guess: half the belief to its labels
    if (rare := list(owner.rare)) and not owner.unseen:
        p = (
            p
            + taught(
                [share.index_fill(1, torch.tensor(rare, device=device), 0.0) for share in shares]
            )
        ) / 2
    confidence = (p.log() * ridge.sureness(aligned, labels, apart)).softmax(1).amax(1).mean()
    for _ in range(unseen.turns if unseen.self_training else 0):
        said = sharpened(p)
        p = taught([unseen.self_training * said[half] for half in halves])
    p = ridge.as_sure(p, confidence)  # self-training makes surer than it makes better
    if guess is not None and bool(here.all()):
        some = batch.teachers[guess.rows][: unseen.kept_rows]
        taught_by = torch.cat([labels, sharpened(p[some])])
        weight = torch.cat([labels.new_ones(known), labels.new_full((len(some),), 1.0)])
        model = ridge.fit(torch.cat([aligned, query[some]]), taught_by, weight, apart)
        keep(owner, batch.shared, model, here)
    return p


KEPT = "batch."  # names of what a batch taught, in the owner's memory


def keep(owner: LabelOwner, shared: Space, model: ridge.Ridge, here: Tensor) -> None:
    """Keeps what a batch taught, so that single rows can be predicted later."""
    facts = {
        "maps": shared.maps,
        "centre": shared.centre,
        "common": torch.tensor(float(shared.common)),
        "points": model.x,
        "coefficients": model.coefficients,
        "there": model.there.float(),
        "spread": model.spread,
        "here": here.float(),
    }
    owner.memory |= {f"{KEPT}{name}": tensor for name, tensor in facts.items()}


def learnt_before(owner: LabelOwner, here: Tensor) -> bool:
    """Whether a batch of the same parties taught something earlier."""
    kept = owner.memory.get(f"{KEPT}here")
    return kept is not None and bool((kept.to(here.device).bool() == here).all())


def predict_by_earlier_batch(
    owner: LabelOwner, f_query: Tensor, here: Tensor, width: int
) -> Tensor:
    """Class probabilities (n, Z) of single rows by what an earlier batch taught (`keep`)."""
    kept = {
        name.removeprefix(KEPT): tensor.to(f_query.device)
        for name, tensor in owner.memory.items()
        if name.startswith(KEPT)
    }
    shared = Space(kept["maps"], kept["centre"], bool(kept["common"]))
    model = ridge.Ridge(kept["points"], kept["coefficients"], kept["there"].bool(), kept["spread"])
    return ridge.predict(model, shared.points(f_query[here], width))


def name_order(
    owner: LabelOwner, guess: Found, aligned: Tensor, query: Tensor, teachers: Tensor
) -> Tensor:
    """(Z,) column of the guess that each class takes; classes with labels keep theirs.

    Which group has which name cannot be learned from the data: it is told by attributes of the
    classes (`owner.attributes`) and, before them, by an example row of a class (`owner.examples`),
    which takes the group most like it.
    """
    order = torch.arange(owner.classes, device=aligned.device)
    if len(owner.unseen) < 2:
        return order
    columns = order[list(owner.unseen)]
    weights = guess.p[:, columns].T  # (groups, m)
    means = weights @ query[teachers[guess.rows]] / weights.sum(1, keepdim=True)  # (groups, D)
    wish = fit_of_attributes(owner, aligned, means)  # (name, group)
    if told := [i for i, z in enumerate(owner.unseen) if z in owner.examples]:
        shown = transport.unit(query[[owner.examples[owner.unseen[i]] for i in told]])
        taken = best_match(shown @ transport.unit(means).T)
        wish[told] = -torch.inf
        wish[told, taken] = 0.0
    order[columns] = columns[best_match(wish)]
    return order


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
