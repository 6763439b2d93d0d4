"""The joint model of tables: the active party's own score, the others' features on top, as far as
the shared rows speak for them.

    logit_z = s_z + a (s_z - mean s_z) + b_z + x . w_z
    a ~ N(0, SLOPE^2)    b_z ~ N(0, LEVEL^2)    w_z ~ N(0, 1 / lambda)

s_z: own log-probabilities, honest on the rows learnt from (methods/own_model.py); x: the features
that the parties present sent, as principal directions of a kernel that is half linear and half
Gaussian.

Nobody knows beforehand how much the others have to say, nor who of them. So there are many
hypotheses h: no partner (w = 0), or a set of partners believed in full, the others' features made
FAINT times smaller, and one of several lambdas. Each is weighed by how likely it makes the labels
of the shared rows (evidence, Laplace's approximation: the likelihood at the best a, b, w less what
their freedom would explain by chance); their logits are averaged.

    P(h | labels) ~ P(h) exp( log p(labels, best) - log det(I + data / prior) / 2 )
    P(no partner) = ALONE beforehand; the rest is spread evenly over sets and lambdas

Useless partners leave most of the weight to no and to small w: the own model answers nearly
unchanged.

rates    the shared rows are few, the own model's labels many: class shifts make the mean probabilities of the shared
         rows equal to the own model's, unless the class counts contradict it by over three standard
         errors

Without an own model s_z are the log class rates of the shared rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.federation.owner import LabelOwner
from protoevfl.methods.own_model import has_own_model, own_scores
from protoevfl.methods.partner_kernel import MIX, Anchors, Floats, Kernel, Products, Sent

LAMBDAS = np.logspace(2.3, -0.7, 7)
ALONE = 0.4  # that no partner has anything to say, beforehand
FAINT = 0.1**0.5  # factor of the features of partners outside a set
ALL_SETS = 3  # partners up to which every set of them is a hypothesis
SLOPE, LEVEL = 0.2, 0.2  # what the own model may be off by
LEAST = 1e-3  # sets of less weight are left out
MOST_ANCHORS = 2000
RANK = 200  # directions of the kernel that are used
CHUNK = 8192  # rows predicted at a time


@dataclass(frozen=True)
class View:
    """The others' features as one set of partners would have them weighed."""

    kernel: Kernel
    basis: Floats  # (n, r): kernel values -> orthogonal directions
    weights: Floats  # (r, Z), times the set's share of the belief

    def evidence(self, rows: Products) -> Floats:
        """What the partners add to the logits (m, Z)."""
        added: Floats = self.kernel(rows) @ (self.basis @ self.weights)
        return added


@dataclass(frozen=True)
class Joint:
    """A fitted joint model of one set of parties."""

    anchors: Anchors
    views: tuple[View, ...]
    slope: float
    level: Floats  # (Z,)
    centre: Floats  # (Z,) mean own score of the shared rows
    own_shift: Floats  # (Z,) class shift of the own model
    shift: Floats  # (Z,) class shift of the result
    alone: float  # P(no partner | labels)

    def predict(self, own: Floats, features: Sent) -> Floats:
        """Probabilities (n, Z) from own scores (n, Z) and the partners' features."""
        parts = []
        for start in range(0, len(own), CHUNK):
            rows = slice(start, start + CHUNK)
            products = self.anchors.products([sent[rows] for sent in features])
            parts.append(self.logits(own[rows], products))
        return softmax(np.concatenate(parts) + self.shift) if parts else own.copy()

    def logits(self, own: Floats, rows: Products) -> Floats:
        """(n, Z), without the class shift of the result."""
        known = own + self.own_shift + self.slope * (own - self.centre) + self.level
        logits: Floats = sum((view.evidence(rows) for view in self.views), known)
        return logits


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    probabilities: Floats = powers / powers.sum(1, keepdims=True)
    return probabilities


def log_loss(logits: Floats, labels: NDArray[np.int64]) -> Floats:
    """-log p(y) of each row, (n,)."""
    top = logits.max(1)
    total: Floats = top + np.log(np.exp(logits - top[:, None]).sum(1))
    losses: Floats = total - logits[np.arange(len(labels)), labels]
    return losses


def fit_joint(own: Floats, features: Sent, labels: NDArray[np.int64], mix: float = MIX) -> Joint:
    """The joint model from own scores (n, Z), features of the partners present, and
    labels (n,); `mix` is the share of the Gaussian kernel."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # matrices this small are slower on several threads
        return _fit_joint(own, features, labels, mix)


def _fit_joint(own: Floats, features: Sent, labels: NDArray[np.int64], mix: float) -> Joint:
    chosen = _anchors(len(own))
    anchors = Anchors(features if len(chosen) == len(own) else [sent[chosen] for sent in features])
    rows = anchors.products(features)
    own_shift = _own_shift(own, labels)
    alone = own + own_shift
    centre = own.mean(0)
    nobody = _fit(alone, own - centre, np.zeros((len(own), 0)), labels, 1.0)
    fits = [nobody]
    beliefs = [np.log(ALONE) + nobody.evidence]
    spaces = []
    sets = _sets(len(features))
    for factors in sets:
        kernel, basis, x = _directions(rows, factors, mix)
        spaces.append((kernel, basis))
        fit = _start(nobody, x.shape[1])
        for strength in LAMBDAS:
            fit = _fit(alone, own - centre, x, labels, strength, fit)
            fits.append(fit)
            beliefs.append(np.log((1 - ALONE) / len(sets) / len(LAMBDAS)) + fit.evidence)
    belief = softmax(np.array(beliefs)[None])[0]
    by_set = np.split(belief[1:], len(sets))
    paths = [fits[1 + i : 1 + i + len(LAMBDAS)] for i in range(0, len(fits) - 1, len(LAMBDAS))]
    views: list[View] = []
    for space, share, path in zip(spaces, by_set, paths, strict=True):
        if share.sum() > LEAST:
            weights: Floats = sum(w * fit.weights for w, fit in zip(share, path, strict=True))
            views.append(View(*space, weights))
    slope = float(sum(w * fit.slope for w, fit in zip(belief, fits, strict=True)))
    level = np.sum([w * fit.level for w, fit in zip(belief, fits, strict=True)], 0)
    unshifted = np.zeros(own.shape[1])
    model = Joint(
        anchors, tuple(views), slope, level, centre, own_shift, unshifted, float(belief[0])
    )
    shift = class_shift(model.logits(own, rows), softmax(alone).mean(0))
    return replace(model, shift=shift)


def _sets(partners: int) -> list[Floats]:
    """The hypotheses of who has something to say, as squared factors (O,) of the partners'
    features."""
    whole = range(partners)
    sizes = whole if partners <= ALL_SETS else {1, partners - 1}
    sets = [set(members) for size in sizes if size for members in combinations(whole, size)]
    believed = [set(whole), *sets]
    return [np.array([1.0 if m in members else FAINT for m in whole]) ** 2 for members in believed]


def _directions(rows: Products, factors: Floats, mix: float) -> tuple[Kernel, Floats, Floats]:
    """(kernel, basis, the rows' orthogonal directions (n, r)) of all labelled rows."""
    from scipy.linalg import eigh

    chosen = _anchors(rows.inner.shape[1])
    anchors = Products(rows.inner[:, chosen], rows.squares[:, chosen])
    kernel = Kernel.of(anchors, factors, mix)
    gram = kernel(anchors)
    most = len(gram) - 1
    eigenvalues, vectors = eigh(gram, subset_by_index=[max(0, most - RANK + 1), most])
    kept = eigenvalues > 1e-6 * max(eigenvalues[-1], 1e-12)
    basis = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    return kernel, basis, kernel(rows) @ basis


def _anchors(rows: int) -> NDArray[np.int64]:
    """Rows that span the kernel: all of them, or MOST_ANCHORS evenly spread ones."""
    return np.linspace(0, rows - 1, min(rows, MOST_ANCHORS)).astype(np.int64)


@dataclass(frozen=True)
class Fit:
    """The likeliest slope, level (Z,) and weights (r, Z) of one hypothesis, and its log evidence."""

    slope: float
    level: Floats
    weights: Floats
    evidence: float


def _start(fit: Fit, directions: int) -> Fit:
    """The same without any word of the others."""
    return replace(fit, weights=np.zeros((directions, len(fit.level))))


def _fit(
    alone: Floats,
    lean: Floats,
    x: Floats,
    labels: NDArray[np.int64],
    strength: float,
    start: Fit | None = None,
) -> Fit:
    """One hypothesis: own logits (n, Z), what the slope acts on (n, Z), directions x (n, r).

    x has nearly orthogonal columns, so a diagonal scaling is a good preconditioner.
    """
    from scipy.optimize import minimize

    rows, directions = x.shape
    classes = alone.shape[1]
    scale = np.concatenate(
        [
            [1 / np.sqrt(SLOPE**-2 + 0.1 * (lean**2).sum())],
            np.full(classes, 1 / np.sqrt(LEVEL**-2 + 0.2 * rows)),
            np.repeat(1 / np.sqrt(strength + 0.2 * (x**2).sum(0)), classes),
        ]
    )
    onehot = np.eye(classes)[labels]

    def unpacked(scaled: Floats) -> tuple[float, Floats, Floats]:
        values = scaled * scale
        return values[0], values[1 : 1 + classes], values[1 + classes :].reshape(-1, classes)

    def loss(scaled: Floats) -> tuple[float, Floats]:
        slope, level, weights = unpacked(scaled)
        logits = alone + slope * lean + level + x @ weights
        error = softmax(logits) - onehot
        penalty = (slope / SLOPE) ** 2 + ((level / LEVEL) ** 2).sum()
        penalty += strength * (weights**2).sum()
        gradient = np.concatenate(
            [
                [(error * lean).sum() + slope / SLOPE**2],
                error.sum(0) + level / LEVEL**2,
                (x.T @ error + strength * weights).ravel(),
            ]
        )
        return float(log_loss(logits, labels).sum() + penalty / 2), gradient * scale

    first = np.zeros(1 + classes * (1 + directions))
    if start is not None:
        first = np.concatenate([[start.slope], start.level, start.weights.ravel()])
    options = {"maxiter": 200, "ftol": 1e-8}
    solved = minimize(loss, first / scale, jac=True, method="L-BFGS-B", options=options)
    slope, level, weights = unpacked(solved.x)
    p = softmax(alone + slope * lean + level + x @ weights)
    freedom = _freedom(p, x / np.sqrt(strength))
    return Fit(float(slope), level, weights, -float(solved.fun) - freedom / 2)


def _freedom(p: Floats, x: Floats) -> float:
    """log det(I + data / prior) of level and weights; x (n, r) in units of its prior.

    Class by class, and exact for two classes, whose weights are each other's opposite.
    """
    rows, classes = p.shape
    design = np.concatenate([np.full((rows, 1), LEVEL), x], 1)
    total = 0.0
    for z in range(classes):
        curved = design * np.sqrt(p[:, z] * (1 - p[:, z]) * classes / (classes - 1))[:, None]
        total += float(np.linalg.slogdet(np.eye(len(design.T)) + curved.T @ curved)[1])
    return float(total * (classes - 1) / classes)


def class_shift(logits: Floats, rates: Floats) -> Floats:
    """b (Z,) with mean softmax(logits + b) = rates."""
    shift = np.zeros(logits.shape[1])
    wanted = np.clip(rates, 1e-9, None)
    for _ in range(100):
        shift += np.log(wanted / np.clip(softmax(logits + shift).mean(0), 1e-12, None))
    centred: Floats = shift - shift.mean()
    return centred


def _own_shift(own: Floats, labels: NDArray[np.int64]) -> Floats:
    """The own model's class shift on the shared rows; zero unless their class counts are
    three standard errors off: two are reached by chance in one run of twenty, and such a shift
    puts the mean probabilities of all rows off."""
    classes = own.shape[1]
    p = softmax(own)
    rows = len(labels)
    seen = np.bincount(labels, minlength=classes) / rows
    error = np.sqrt((p * (1 - p)).sum(0)) / rows
    bound = 3 * error * (1 if classes == 2 else 1.3)
    if (np.abs(seen - p.mean(0)) <= bound).all():
        return np.zeros(classes)
    return class_shift(own, (rows * seen + 0.5) / (rows + 0.5 * classes))


def predict_joint(owner: LabelOwner, query: Tensor, here: Tensor) -> Tensor:
    """Probabilities (n, Z) of query features (M, n, d) from the parties present `here` (M,).

    The active party's columns enter through its own model where it has one, else as features like
    everybody's.
    """
    with_own = has_own_model(owner) and bool(here[0])
    senders = [m for m in here.nonzero()[:, 0].tolist() if m or not with_own]
    if with_own:
        assert owner.own is not None
        own = own_scores(owner, owner.own.query)
        if not senders:
            return own.exp()
    else:
        own = log_rates(owner.labels, owner.classes).expand(query.shape[1], -1)
    model = _fitted(owner, tuple(senders), with_own)
    p = model.predict(own.cpu().double().numpy(), _arrays([query[m] for m in senders]))
    return torch.from_numpy(p).float().to(query.device)


def log_rates(labels: Tensor, classes: int) -> Tensor:
    """Log class rates (Z,), every class counted half a row more."""
    counts = torch.bincount(labels, minlength=classes) + 0.5
    return (counts / counts.sum()).log()


def _fitted(owner: LabelOwner, senders: tuple[int, ...], with_own: bool) -> Joint:
    """The joint model of these parties; it is fitted once."""
    key = ("joint", senders, with_own)
    if key not in owner.cache:
        sent = [owner.memory["embeddings"][m] for m in senders]
        labels = owner.labels
        rows = torch.arange(len(labels), device=labels.device)  # places among the shared rows
        if owner.further is not None:
            held = owner.further.shared[list(senders)].any(0) & (owner.further.labels >= 0)
            further = owner.memory["further"]
            sent = [torch.cat([f, further[m, held]]) for m, f in zip(senders, sent, strict=True)]
            labels = torch.cat([labels, owner.further.labels[held]])
            rows = torch.cat([rows, len(owner.labels) + held.nonzero()[:, 0]])
        if with_own:
            own = owner.memory["own.shared"][rows]
        else:
            own = log_rates(labels, owner.classes).expand(len(labels), -1)
        owner.cache[key] = fit_joint(
            own.cpu().double().numpy(),
            _arrays(sent),
            labels.cpu().numpy(),
            mix=0.0 if "scores" in owner.memory else MIX,  # scores are evidence: they add up
        )
    model: Joint = owner.cache[key]
    return model


def _arrays(sent: Sequence[Tensor]) -> Sent:
    """No copies on a CPU."""
    return [f.cpu().numpy() for f in sent]
