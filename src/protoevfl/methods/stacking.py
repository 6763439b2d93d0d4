"""The joint model of images: the own model and the others' evidence multiplied, then self-training
of the batch.

    others    kernel ridge regression (core/ridge.py) in the space the others have in common, taught by shared rows
    stack     log p = a0 log p_own + a1 log p_others + b        (a0, a1) shrunk to (1, 0), b to 0
    gate      the others count if a1 > 0 and the likelihood ratio 2 (l - l_own) of the shared rows is at least GAIN
    batch     p <- softmax(a0 log p_own + TRUST a1 log p_others(taught by labels and p)),  `turns` times
    overlap   a row that only some parties have: what the others would have seen is ridge-regressed
    from what these see,
              on rows that all have (no label enters); it teaches with the weight IMPUTED

Scores of shared rows are honest on both sides: own members leave them out, the regression's
left-out prediction has a closed form. With one other party nothing tells what is common, so there
the stack answers.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import canonical, ridge, transport
from protoevfl.core import random as rnd
from protoevfl.federation.owner import LabelOwner
from protoevfl.methods.own_model import own_scores
from protoevfl.methods.unseen import UnseenSettings

SHRINK = 3.0  # against a log-likelihood that is a sum over rows
GAIN = 6.0
TRUST = 2.0  # the regression has learnt from the batch since a1 was fitted
BATCH_WEIGHT = 1.0  # of a batch row against a shared one
IMPUTED = 0.25
IMPUTATION_RIDGE = 0.1  # of the mean eigenvalue


def predict_stacked(
    owner: LabelOwner, f: Tensor, query: Tensor, here: Tensor, width: int, settings: UnseenSettings
) -> Tensor:
    """Probabilities (n, Z) of query embeddings (M, n, d) where the active party is among those
    present `here` (M,).

    f       embeddings (M, N, d) of the rows shared by all
    width   of an embedding's output; the rest are inner layers
    """
    assert owner.own is not None
    own_query = own_scores(owner, owner.own.query)
    others = [m for m in here.nonzero()[:, 0].tolist() if m]
    if not others:
        return own_query.exp()
    own_shared = owner.memory["own.shared"][: len(owner.labels)]
    evidence = _evidence(owner, f, query, others, width, settings)
    joint_shared, joint_query = evidence.first(len(owner.labels))
    shown = evidence.labels.sum(0) > 0  # (Z,) classes that a labelled row shows to the others
    joint_shared = neutral(joint_shared, own_shared, shown)
    joint_query = neutral(joint_query, own_query, shown)
    stacked = stack([own_shared, joint_shared], owner.labels)
    alone = stack([own_shared], owner.labels)
    gains = 2 * (stacked.likelihood - alone.likelihood)
    if stacked.weights[1] <= 0 or gains < GAIN:  # joining does not pay
        recalibrated: Tensor = alone.weights[0] * own_query + alone.level * shown
        return recalibrated.softmax(1)
    a0, a1 = stacked.weights
    p: Tensor = (a0 * own_query + a1 * joint_query + stacked.level * shown).softmax(1)
    if len(others) < 2 or not settings.self_training:
        return p
    confidence = p.amax(1).mean()
    for _ in range(settings.turns):
        p = (a0 * own_query + TRUST * a1 * evidence.taught(p)).softmax(1)
    return ridge.as_sure(p.clamp(min=1e-12), confidence)


def neutral(evidence: Tensor, own: Tensor, shown: Tensor) -> Tensor:
    """The others' log-probabilities (n, Z); of classes that only the active party's own rows show
    the others know nothing, so there they say what leaves the own model's belief in these classes
    as it is."""
    belief = own.exp() * shown
    mean = (belief * evidence.exp()).sum(1, keepdim=True) / belief.sum(1, keepdim=True)
    return torch.where(shown, evidence, mean.log())


@dataclass(frozen=True)
class Stack:
    weights: Tensor  # (K,)
    level: Tensor  # (Z,)
    likelihood: float  # of the rows it was fitted on


def stack(scores: list[Tensor], labels: Tensor) -> Stack:
    """max  sum_i log p_i(y_i) - SHRINK (|a - (1, 0, ...)|^2 + |b|^2) of p = softmax(sum_k a_k
    scores_k + b)."""
    x = torch.stack(scores, 1).detach()  # (N, K, Z)
    centre = torch.eye(len(scores), device=x.device)[0]
    a = centre.clone().requires_grad_()
    b = torch.zeros(x.shape[-1], device=x.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([a, b], max_iter=100)

    def negative_likelihood() -> Tensor:
        return F.cross_entropy((x * a[:, None]).sum(1) + b, labels, reduction="sum")

    def loss() -> Tensor:
        optimizer.zero_grad()
        shrinkage = (a - centre).square().sum() + b.square().sum()
        value = negative_likelihood() + SHRINK * shrinkage
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        likelihood = -float(negative_likelihood())
    return Stack(a.detach(), b.detach(), likelihood)


@dataclass
class Evidence:
    """The regression on the other parties' embeddings: taught by labelled points, then by the batch
    as well."""

    points: Tensor  # (L, D) rows shared by all first, then the further ones
    labels: Tensor  # (L, Z) one-hot
    weight: Tensor  # (L,)
    query: Tensor  # (n, D)
    spread: Tensor
    fold: Tensor  # (n,) 0 or 1
    halves: list[Tensor]  # the rows of each fold that teach

    def first(self, shared: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the shared rows, each left out in closed form, and of the rows to be
        predicted."""
        root = ridge.equal_classes(self.labels, self.weight).sqrt()[:, None]
        system = root * ridge.kernel(self.points, self.points, self.spread) * root.T
        system.diagonal().add_(ridge.PENALTY)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(system))
        target = self.labels - 1 / self.labels.shape[1]
        dual = inverse @ (root * target)
        left_out = target - dual / (inverse.diagonal()[:, None] * root)
        query = ridge.kernel(self.query, self.points, self.spread) @ (root * dual)
        return (ridge.SCALE * left_out[:shared]).log_softmax(1), (ridge.SCALE * query).log_softmax(
            1
        )

    def taught(self, p: Tensor) -> Tensor:
        """Log-probabilities after one turn: each fold is taught by labels and the other fold's
        sharpened p (n, Z)."""
        sharp = p.square() / p.square().sum(1, keepdim=True)
        out = torch.zeros_like(p)
        for k, half in enumerate(self.halves):
            y = torch.cat([self.labels, sharp[half]])
            weight = torch.cat([self.weight, sharp.new_full((len(half),), BATCH_WEIGHT)])
            points = torch.cat([self.points, self.query[half]])
            model = ridge.fit(points, y, weight, self.spread)
            out[self.fold != k] = ridge.predict(model, self.query[self.fold != k])
        return out.clamp(min=1e-12).log()


def _evidence(
    owner: LabelOwner,
    f: Tensor,
    query: Tensor,
    others: list[int],
    width: int,
    settings: UnseenSettings,
) -> Evidence:
    known = len(owner.labels)
    n = query.shape[1]
    device = f.device
    order = rnd.permutation(owner.keys("fold"), "fold", 0, n)[0]
    fold = order % 2
    teaching = order < 2 * settings.batch_rows  # time grows with the cube of the rows that teach
    halves = [((fold == k) & teaching).nonzero()[:, 0] for k in (0, 1)]
    units = _units(torch.cat([f[others], query[others]], 1), width)  # (O, N + n, d)
    both = torch.cat([torch.arange(known, device=device), *(known + half for half in halves)])
    space = CommonSpace(units, both)
    x = space(units)
    labels = F.one_hot(owner.labels, owner.classes).float()
    points = [x[:known]]
    targets = [labels]
    weights = [labels.new_ones(known)]
    if owner.further is not None:
        further, further_labels = _imputed(owner, units, others, width)
        points.append(space(further))
        targets.append(F.one_hot(further_labels, owner.classes).float())
        weights.append(labels.new_full((len(further_labels),), IMPUTED))
    spread = settings.kernel_width * ridge.spread(x[:known])
    return Evidence(
        torch.cat(points), torch.cat(targets), torch.cat(weights), x[known:], spread, fold, halves
    )


def _units(f: Tensor, width: int) -> Tensor:
    """Output and inner layers have length one each."""
    layers = [f[..., :width], f[..., width:]] if f.shape[-1] > width else [f]
    return torch.cat([transport.unit(layer) for layer in layers], -1)


class CommonSpace:
    """What several parties have in common, as a linear map of their embeddings u (O, n, d) that
    further rows can enter.

    Canonical directions where there are more rows than dimensions and two parties, else principal
    components.
    """

    def __init__(self, u: Tensor, rows: Tensor) -> None:
        self.mean = u[:, rows].mean(1, keepdim=True)
        self.canonical = len(u) > 1 and len(rows) > u.shape[-1]
        if self.canonical:
            self.map = canonical.directions(u[:, rows])
        else:
            together = u.movedim(0, 1).flatten(1)[rows]
            self.map = canonical.principal(together).view(len(u), u.shape[-1], -1)

    def __call__(self, u: Tensor) -> Tensor:
        """(O, n, d) -> (n, D)."""
        x = (u - self.mean) @ self.map
        return x.movedim(0, 1).flatten(1) if self.canonical else x.sum(0)


def _imputed(
    owner: LabelOwner, units: Tensor, others: list[int], width: int
) -> tuple[Tensor, Tensor]:
    """Further labelled rows that some of the others have (O, k, d), missing blocks regressed, and
    their labels (k,)."""
    assert owner.further is not None
    sent = _units(owner.memory["further"][others], width)  # (O, F, d)
    # (O, F); zeros: it was away
    shared = owner.further.shared[others] & owner.memory["further"][others].any(-1)
    labelled = owner.further.labels >= 0
    blocks = []
    labels = []
    for seen in {tuple(pattern) for pattern in shared.T.tolist()}:
        if not any(seen):
            continue
        pattern = torch.tensor(seen, device=shared.device)
        rows = ((shared == pattern[:, None]).all(0) & labelled).nonzero()[:, 0]
        if len(rows):
            blocks.append(_regressed(units, sent[:, rows], pattern))
            labels.append(owner.further.labels[rows])
    if not blocks:
        return units[:, :0], owner.labels[:0]
    return torch.cat(blocks, 1), torch.cat(labels)


def _regressed(units: Tensor, sent: Tensor, pattern: Tensor) -> Tensor:
    """Rows (O, k, d) of which the parties of `pattern` (O,) sent a block; the others' by ridge
    regression on rows `units` (O, n, d) that all parties have."""
    mean = units.mean(1, keepdim=True)
    x = units - mean
    seen = x[pattern].movedim(0, 1).flatten(1)  # (n, D)
    given = (sent - mean)[pattern].movedim(0, 1).flatten(1)  # (k, D)
    scatter = seen.T @ seen
    scatter.diagonal().add_(IMPUTATION_RIDGE * scatter.diagonal().mean())
    inverse = torch.linalg.solve(scatter, seen.T)  # (D, n)
    full = torch.stack([given @ (inverse @ block) for block in x]) + mean
    full[pattern] = sent[pattern]
    return full
