"""Which rows of a batch are of classes nobody labelled? Many guesses, and the one that explains the
batch best.

A class without labels hides among the classes it resembles: rows of it are taken for them, and more
rows are taken for them than there should be. So each guess names a part of the batch: what no
labelled row covers, and a part of each class (or of two that are mixed up most) with the fewest
labelled rows. From each guess a linear ridge regression is taught and teaches itself on the batch,
in two folds; all guesses at once, with a leading axis H.

    p_h (n, Z)   probabilities after TURNS turns; before each, class rates are evened out
    off_h        = sum_z | mean_i p_h(i, z) - rate_z |
    told_h       = H(mean_i p_h(i)) - mean_i H(p_h(i))        H: entropy over the classes
    score_h      = told_h - 2 off_h
    weight_h     = exp( (score_h - max score) / WIDTH )

Good guesses often find the same rows. The one that the others agree with most, counted by weight,
is taken, and averaged with those like it; how far they agree says how sure the finding is. It rests
on one assumption: classes are about as frequent among the rows to be predicted as among the
labelled ones, and a class without labels is as frequent as the others on average.
"""

from dataclasses import dataclass
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import canonical, novelty, ridge
from protoevfl.core import random as rnd
from protoevfl.core.transport import unit
from protoevfl.federation.owner import LabelOwner

ROWS = 2000  # of a batch that guesses are compared on
DIRECTIONS = 100  # of the common space that they are compared in
TURNS = 4
TRIES = 2  # of k-means
FEWEST = 0.02  # share of the batch a class must have to be split
WIDTH = 0.05  # difference of scores that counts
FIRST = 8  # single guesses that sets of two and more are made of


@dataclass(frozen=True)
class Found:
    """What good guesses make of some rows of the batch.

    rows (m,)    their numbers in the batch
    p (m, Z)     their class probabilities
    sureness     0 to 1: how far good guesses agree on which rows are of classes without labels
    """

    rows: Tensor
    p: Tensor
    sureness: Tensor


class Bench:
    """Labelled and some unlabelled points, ready to teach many guesses at once."""

    def __init__(self, owner: LabelOwner, aligned: Tensor, query: Tensor, fold: Tensor) -> None:
        self.owner = owner
        self.keys = owner.keys("guesses")
        self.rows = rnd.permutation(self.keys, "rows", 0, len(query))[0][:ROWS]
        self.known = len(aligned)
        self.labels = F.one_hot(owner.labels, owner.classes).float()
        points = torch.cat([aligned, query[self.rows]])
        points = points @ canonical.principal(points, DIRECTIONS)
        self.aligned, self.query = points[: self.known], points[self.known :]
        points = points * (2 / ridge.spread(aligned)).sqrt()
        self.points = F.pad(points, (0, 1), value=1.0)  # (N + n, D)
        self.fold = fold[self.rows]
        self.rates = class_rates(owner)

    def taught(self, shares: Tensor) -> Tensor:
        """Probabilities (H, n, Z) of ridge regressions on the labelled rows and, in so far as they
        stand for each class, shares (H, n, Z) of the other fold's rows."""
        x, z = self.points, self.labels.shape[1]
        p = torch.zeros_like(shares)
        counts = self.labels.sum(0)
        for k in (0, 1):
            share = shares * (self.fold == k)[:, None]
            total = share.sum(-1, keepdim=True)
            mass = counts + share.sum(1)  # (H, Z)
            there = mass > 1e-6
            mean = (mass * there).sum(1, keepdim=True) / there.sum(1, keepdim=True)
            factor = torch.where(there, mean / mass.clamp(min=1e-6), 0.0)  # (H, Z)
            weight = torch.cat([factor @ self.labels.T, (share @ factor[..., None])[..., 0]], 1)
            target = torch.cat(
                [self.labels.expand(len(shares), -1, -1), share / total.clamp(min=1e-9)], 1
            )
            weighted = x.T * weight[:, None]  # (H, D, N + n)
            system = weighted @ x
            system.diagonal(dim1=-2, dim2=-1).add_(ridge.PENALTY)
            coefficients = torch.linalg.solve(system, weighted @ (target - 1 / z))  # (H, D, Z)
            logits = ridge.SCALE * x[self.known :] @ coefficients
            logits = logits.masked_fill(~there[:, None], -torch.inf)
            p = torch.where((self.fold != k)[:, None], logits.softmax(-1), p)
        return p

    def settled(self, groups: Tensor) -> Tensor:
        """Probabilities (H, n, Z) that follow from guesses (H, k, n): which rows stand for each of
        the k classes without labels."""
        usual = self.known / max(1, int((self.labels.sum(0) > 0).sum()))
        shares = self.labels.new_zeros(len(groups), len(self.query), self.labels.shape[1])
        per_fold = torch.stack([groups * (self.fold == k) for k in (0, 1)])
        weights = per_fold / per_fold.sum(-1, keepdim=True).clamp(min=1e-9)
        shares[..., list(self.owner.unseen)] = usual * weights.sum(0).mT
        p = self.taught(shares)
        for _ in range(TURNS):
            p = self.taught(sharpened(evened(p, self.rates)))
        return p

    def score(self, p: Tensor) -> Tensor:
        """(H,) for probabilities (H, n, Z): how much they say, less how far rates are off."""
        mean = p.mean(1)
        told = torch.special.entr(mean).sum(-1) - torch.special.entr(p).sum(-1).mean(1)
        score: Tensor = told - 2 * (mean - self.rates).abs().sum(-1)
        return score


def class_rates(owner: LabelOwner) -> Tensor:
    """(Z,) rates to expect: of each class that lacks labels that of a class on average, of the
    others as labelled. A class nobody labelled or named is not there."""
    counts = torch.bincount(owner.labels, minlength=owner.classes).float()
    lacking = list(owner.unseen + owner.rare)
    counts[lacking] = 0.0
    there = int((counts > 0).sum()) + len(lacking)
    rates = counts / counts.sum() * (1 - len(lacking) / there)
    rates[lacking] = 1 / there
    return rates


def evened(p: Tensor, rates: Tensor) -> Tensor:
    """Probabilities (..., n, Z) weighed so that the mean comes near the rates (Z,)."""
    weighed = p * (rates / p.mean(-2, keepdim=True).clamp(min=1e-4))
    return weighed / weighed.sum(-1, keepdim=True)


def sharpened(p: Tensor) -> Tensor:
    return p.square() / p.square().sum(-1, keepdim=True)


def best_guess(owner: LabelOwner, aligned: Tensor, query: Tensor, fold: Tensor) -> Found:
    """The guess of highest score for all classes without labels; points (N, D) and (n, D) of the
    common space, fold (n,) 0 or 1."""
    bench = Bench(owner, aligned, query, fold)
    count = len(owner.unseen)
    single = single_guesses(bench)  # (H, n)
    groups = single[:, None] if count == 1 else sets_of_guesses(bench, single, count)
    p = bench.settled(groups)
    weight = ((bench.score(p) - bench.score(p).max()) / WIDTH).exp()  # (H,)
    p = same_order(p, p[weight.argmax()], owner.unseen)
    alike = likeness(p[..., list(owner.unseen)])  # (H, H)
    chosen = (alike @ weight).argmax()
    belief = weight * alike[chosen].clamp(min=0).square()
    mean = (belief[:, None, None] * p).sum(0) / belief.sum()
    return Found(bench.rows, mean, (alike[chosen] @ weight) / weight.sum())


def evidence(owner: LabelOwner, found: Found) -> Tensor:
    """How clearly there are classes without labels at all: the sureness, and their share of the
    batch for the share to expect. Guesses of a class that is not there agree little, and it ends
    up smaller than it should be."""
    columns = list(owner.unseen)
    share = found.p[:, columns].sum(1).mean() / class_rates(owner)[columns].sum()
    return found.sureness + share


def likeness(p: Tensor) -> Tensor:
    """Correlations (H, H) of what guesses (H, n, k) say of the same rows."""
    said = (p - p.mean(1, keepdim=True)).flatten(1)
    return unit(said) @ unit(said).T


def same_order(p: Tensor, like: Tensor, unseen: tuple[int, ...]) -> Tensor:
    """Probabilities (H, n, Z) with the columns of classes without labels in the order that fits
    those of `like` (n, Z) best: guesses may have them in any order."""
    if len(unseen) == 1:
        return p
    columns = torch.tensor(unseen, device=p.device)
    fit = p[..., columns].mT @ like[:, columns]  # (H, k, k)
    ordered = p.clone()
    for h in range(len(p)):
        ordered[h][:, columns] = p[h][:, columns[best_match(fit[h].T)]]
    return ordered


def single_guesses(bench: Bench) -> Tensor:
    """Weights (H, n): which rows might be of a class nobody labelled."""
    nothing = bench.labels.new_zeros(1, len(bench.query), bench.owner.classes)
    seen = bench.taught(nothing)[0]  # (n, Z)
    return torch.cat([uncovered_rows(bench, seen), parts_of_classes(bench, seen)])


def uncovered_rows(bench: Bench, seen: Tensor) -> Tensor:
    """(5, n): rows far from labelled ones, rows of no sure class, clusters with few labelled rows;
    and the farthest and the least sure rows of each class that is taken too often, as many as are
    too many."""
    scores = novelty.novelty(bench.query[None], bench.aligned[None], bench.keys, groups=1)
    far = novelty.members(scores, far_bar(scores))[0]
    share = len(bench.owner.unseen) / bench.owner.classes
    sure = seen.amax(1)
    unsure = (sure < sure.quantile(share)).float()
    everything = torch.ones_like(sure)[None]
    parts, labelled = split(bench, everything, 2 * bench.owner.classes, "clusters", bench.labels)
    sizes, ratio = parts[0].sum(-1), labelled[0]
    order = ratio.argsort()
    enough = sizes[order].cumsum(0) - sizes[order] < share * len(sure)
    empty = parts[0][order[enough]].sum(0)
    return torch.stack(
        [far, unsure, empty, too_many(bench, seen, scores.pool[0]), too_many(bench, seen, -sure)]
    )


def too_many(bench: Bench, seen: Tensor, rank: Tensor) -> Tensor:
    """(n,) of the rows taken for each class those of highest rank, as many as exceed its rate."""
    taken = F.one_hot(seen.argmax(1), seen.shape[1]).bool()  # (n, Z)
    surplus = (taken.sum(0) - bench.rates * len(seen)).clamp(min=0)
    places = torch.where(taken, rank[:, None], -torch.inf).argsort(0, descending=True).argsort(0)
    return (taken & (places < surplus)).any(1).float()


def far_bar(scores: novelty.Novelty) -> Tensor:
    """Half way between 3 standard deviations and the mean of the top 2 % of scores, at least 3."""
    top = scores.pool.topk(max(1, scores.pool.shape[1] // 50), dim=1).values.mean(1)
    return torch.maximum(torch.full_like(top, 3.0), (3 + top) / 2)


def parts_of_classes(bench: Bench, seen: Tensor) -> Tensor:
    """(H, n): of the rows taken for each class, and for each two that are mixed up most, the part
    with the fewest labelled rows."""
    taken = F.one_hot(seen.argmax(1), seen.shape[1]).float()  # (n, Z)
    mixed = (seen.T @ seen).fill_diagonal_(0.0)
    often = [z for z, share in enumerate(taken.mean(0).tolist()) if share > FEWEST]
    pairs = sorted({tuple(sorted((z, int(mixed[z].argmax())))) for z in often})
    ones = torch.stack([taken[:, z] for z in often])
    twos = torch.stack([taken[:, list(pair)].sum(1) for pair in pairs])
    label_of_ones = torch.stack([bench.labels[:, z] for z in often])
    label_of_twos = torch.stack([bench.labels[:, list(pair)].sum(1) for pair in pairs])
    found = []
    for attempt in range(TRIES):
        for members, labelled, k in (
            (ones, label_of_ones, 2),
            (ones, label_of_ones, 3),
            (twos, label_of_twos, 3),
        ):
            parts, ratio = split(bench, members, k, f"{k} parts {attempt}", labelled)
            emptiest = ratio.argmin(1)
            found.append(parts[torch.arange(len(parts), device=parts.device), emptiest])
    return torch.cat(found)


def split(
    bench: Bench, members: Tensor, k: int, purpose: str, labelled: Tensor
) -> tuple[Tensor, Tensor]:
    """Clusters of rows members (G, n) into k parts (G, k, n), and how many labelled rows each has
    for one of the batch (G, k); `labelled` (G, N) or (N, Z) says which labelled rows count."""
    groups = len(members)
    keys = rnd.derive(bench.keys, purpose)
    own = torch.stack([rnd.derive(keys, f"set {g}")[0] for g in range(groups)])
    x = unit(bench.query).expand(groups, -1, -1)
    side, centres = novelty.clusters(x, k, own, members + 1e-9)
    parts = F.one_hot(side, k).float().mT * members[:, None]
    counted = labelled.sum(1).expand(groups, -1) if labelled.shape[0] != groups else labelled
    nearest = (unit(bench.aligned) @ centres.mT).argmax(-1)  # (G, N)
    covered = (F.one_hot(nearest, k).float() * counted[..., None]).sum(1)  # (G, k)
    return parts, (covered + 0.5) / (parts.sum(-1) + 0.5)


def sets_of_guesses(bench: Bench, single: Tensor, count: int) -> Tensor:
    """(H, count, n): sets of single guesses (S, n) for `count` classes at once.

    Sets of the best that differ, then the best set with one of its guesses replaced by each other
    guess.
    """
    together = bench.settled(single[:, None].expand(-1, count, -1))
    order = bench.score(together).argsort(descending=True)
    differing = different(single[order])[:FIRST]
    first = single[order][differing]
    sets = [first[list(chosen)] for chosen in combinations(range(len(first)), count)]
    unnamed = together[order[:3]][..., list(bench.owner.unseen)].sum(-1)  # (3, n)
    parts, _ = split(bench, unnamed, count, "unseen", bench.labels)
    groups = torch.cat([torch.stack(sets), parts]) if sets else parts
    best = groups[bench.score(bench.settled(groups)).argmax()]  # (count, n)
    replaced = [
        torch.stack([guess if j == i else best[j] for j in range(count)])
        for i in range(count)
        for guess in single
    ]
    return torch.stack([best, *replaced])


def different(guesses: Tensor) -> list[int]:
    """Numbers of guesses (H, n) that overlap by less than half with every one before."""
    likeness = unit(guesses) @ unit(guesses).T
    kept: list[int] = []
    for i in range(len(guesses)):
        if all(likeness[i, j] < 0.5 for j in kept):
            kept.append(i)
    return kept


def best_match(similarity: Tensor) -> Tensor:
    """The best bijection: row i goes with column order[i]."""
    from scipy.optimize import linear_sum_assignment

    order = linear_sum_assignment(similarity.cpu().numpy(), maximize=True)[1]
    return torch.as_tensor(order, device=similarity.device)
