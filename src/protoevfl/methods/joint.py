"""The joint model of tables: the active party's own score, the others' features on top, shrunk to
the own model.

    logit_z = a s_z + b_z + x . w_z
    min  sum_i -log p_i(y_i) + (a - 1)^2 / 2 + lambda |w|^2 / 2

s_z: own log-probabilities, honest on the rows learnt from (methods/own_model.py); x: the features
that the parties present sent, as principal directions of a kernel that is half linear and half
Gaussian. Models of several lambdas are averaged by their cross-validated likelihood.

gate     score test: do the others' directions x explain what the own model gets wrong?
         Q = sum_z |x' r_z|^2, r_z = [y = z] - p_z, against Q of labels drawn from the own model
         rho = 1 where P(Q drawn >= Q) <= .05, falling to 0 at .1;  logits = own + rho (joint - own)
         and 0 where cross-validation shows no gain over the own model with a level and slope of
         the shared rows: there the own model answers, unchanged
rates    the shared rows are few, the own model's labels many: class shifts make the mean probabilities of the shared
         rows equal to the own model's, unless the class counts contradict it by over three standard
         errors

Without an own model s_z are the log class rates of the shared rows, and the gate compares with
these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.federation.owner import LabelOwner
from protoevfl.methods.own_model import has_own_model, own_scores

Floats = NDArray[np.float64]
LAMBDAS = np.logspace(1.5, -1.5, 7)
DRAWS = 999  # of labels under the own model
BELIEVED, DOUBTED = 0.05, 0.1  # probabilities at which the gate is open, and shut
FOLDS = 10
REPEATS = 2
SMALL = 1500  # rows times classes up to which cross-validation is repeated
MOST_ANCHORS = 2000
RANK = 200  # directions of the kernel that are used
MIX = 0.5  # share of the Gaussian kernel
CHUNK = 8192  # rows predicted at a time


@dataclass(frozen=True)
class Kernel:
    """k(x, x') = (1 - mix) x . x' / length + mix exp(-|x - x'|^2 / distance): linear, and near rows
    alike."""

    anchors: Floats  # (n, D) the rows learnt from
    distance: float  # median squared distance of the anchors
    length: float  # mean squared length of the anchors
    mix: float  # share of the Gaussian kernel

    @classmethod
    def of(cls, anchors: Floats, mix: float = MIX) -> "Kernel":
        squares = (anchors**2).sum(1)
        apart = squares[:, None] + squares - 2 * anchors @ anchors.T
        pairs = apart[np.triu_indices(len(anchors), 1)]
        distance = float(np.median(pairs)) if len(pairs) else 1.0
        return cls(anchors, distance + 1e-9, float(squares.mean()) + 1e-9, mix)

    def __call__(self, x: Floats) -> Floats:
        """(m, D) -> (m, n)."""
        inner = x @ self.anchors.T
        apart = (x**2).sum(1)[:, None] + (self.anchors**2).sum(1) - 2 * inner
        near = np.exp(-apart / self.distance)
        values: Floats = (1 - self.mix) * inner / self.length + self.mix * near
        return values


@dataclass(frozen=True)
class Joint:
    """A fitted joint model of one set of parties."""

    kernel: Kernel
    basis: Floats  # (n, r): kernel values -> orthogonal directions
    fitted: Floats  # (a, b, w) as one vector
    own_shift: Floats  # (Z,) class shift of the own model
    shift: Floats  # (Z,) class shift of the result
    gate: float  # rho

    def predict(self, own: Floats, features: Floats) -> Floats:
        """Probabilities (n, Z) from own scores (n, Z) and the parties' features (n, D)."""
        parts = [
            self._logits(own[i : i + CHUNK], features[i : i + CHUNK])
            for i in range(0, len(own), CHUNK)
        ]
        return softmax(np.concatenate(parts) + self.shift) if parts else own.copy()

    def _logits(self, own: Floats, features: Floats) -> Floats:
        alone = own + self.own_shift
        joined = _logits(self.fitted, own, self.kernel(features) @ self.basis)
        mixed: Floats = alone + self.gate * (joined - alone)
        return mixed


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


def fit_joint(
    own: Floats, features: Floats, labels: NDArray[np.int64], seed: int = 0, mix: float = MIX
) -> Joint:
    """The joint model from own scores (n, Z), features (n, D) of the parties present, and labels
    (n,); `mix` is the share of the Gaussian kernel."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # matrices this small are slower on several threads
        return _fit_joint(own, features, labels, seed, mix)


def _fit_joint(
    own: Floats, features: Floats, labels: NDArray[np.int64], seed: int, mix: float
) -> Joint:
    from scipy.linalg import eigh

    kernel = Kernel.of(features[_anchors(len(features))], mix)
    gram = kernel(kernel.anchors)
    most = len(gram) - 1
    eigenvalues, vectors = eigh(gram, subset_by_index=[max(0, most - RANK + 1), most])
    kept = eigenvalues > 1e-6 * max(eigenvalues[-1], 1e-12)
    basis = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    x = kernel(features) @ basis
    path = np.array([_fit(own, x, labels, strength) for strength in LAMBDAS])
    losses = _cross_validated(own, x, labels, LAMBDAS, path, seed)  # (lambdas, n)
    total = losses.sum(1)
    weight = np.exp(total.min() - total)
    weight /= weight.sum()
    fitted = weight @ path
    own_shift = _own_shift(own, labels)
    alone = own + own_shift
    # the others must be better than the own model fitted to the shared rows by level and slope:
    # without them a class rate of the shared rows that differs by chance would count as their gain
    nobody = x[:, :0]
    fitted_own = _fit(own, nobody, labels, 1.0)
    (losses_own,) = _cross_validated(own, nobody, labels, np.ones(1), fitted_own[None], seed)
    gain = float((losses_own - weight @ losses).mean())
    calibrated = _logits(fitted_own, own, nobody)
    gate = _gate(score_test(calibrated, x, labels, seed)) if gain > 0 else 0.0
    shift = np.zeros(own.shape[1])
    if gate > 0:
        mixed = alone + gate * (_logits(fitted, own, x) - alone)
        shift = class_shift(mixed, softmax(alone).mean(0))
    return Joint(kernel, basis, fitted, own_shift, shift, gate)


def _anchors(rows: int) -> NDArray[np.int64]:
    """Rows that span the kernel: all of them, or MOST_ANCHORS evenly spread ones."""
    return np.linspace(0, rows - 1, min(rows, MOST_ANCHORS)).astype(np.int64)


def score_test(alone: Floats, x: Floats, labels: NDArray[np.int64], seed: int = 0) -> float:
    """P(Q of labels drawn from the own model >= Q of the true ones): small where x (n, r) explains
    what the own model with logits `alone` (n, Z) gets wrong.

    What a level and a slope of the own score could mend is left out of x: that is no gain of the
    others. Each class has its own test directions, so Q sums over classes.
    """
    rows, classes = alone.shape
    p = softmax(alone)
    uniform = np.random.default_rng(seed).random((DRAWS, rows, 1))
    drawn = (uniform > p.cumsum(1)[:, :-1]).sum(2)  # (DRAWS, n) labels
    statistic = 0.0
    under_own_model = np.zeros(DRAWS)
    for z in range(classes):
        level_and_slope = np.stack([np.ones(rows), alone[:, z]], 1)
        directions = x - level_and_slope @ np.linalg.lstsq(level_and_slope, x, rcond=None)[0]
        statistic += float(((((labels == z) - p[:, z]) @ directions) ** 2).sum())
        under_own_model += ((((drawn == z) - p[:, z]) @ directions) ** 2).sum(1)
    return float((1 + (under_own_model >= statistic).sum()) / (1 + DRAWS))


def _gate(probability: float) -> float:
    """How far the joint model is believed, by the probability of so much evidence by chance."""
    return float(np.clip((DOUBTED - probability) / (DOUBTED - BELIEVED), 0, 1))


def _cross_validated(
    own: Floats,
    x: Floats,
    labels: NDArray[np.int64],
    strengths: Floats,
    path: Floats,
    seed: int,
) -> Floats:
    """Log-loss (strengths, n) of every row by models that have not seen it, mean over the repeats.

    path   the fits of all rows, one per strength: where the fits of a fold start
    """
    small = len(labels) * own.shape[1] <= SMALL  # few rows and classes: more folds, several times
    folds, repeats = (FOLDS, REPEATS) if small else (FOLDS // 2, 1)
    losses = np.zeros((len(strengths), len(labels)))
    for repeat in range(repeats):
        for train, held in _stratified(labels, min(folds, len(labels)), seed + repeat):
            for i, strength in enumerate(strengths):
                fitted = _fit(own[train], x[train], labels[train], strength, path[i])
                losses[i, held] += log_loss(_logits(fitted, own[held], x[held]), labels[held])
    averaged: Floats = losses / repeats
    return averaged


def _stratified(labels: NDArray[np.int64], folds: int, seed: int) -> list[tuple[Any, Any]]:
    """Folds with the classes in equal shares where they can be: rows sorted by class are dealt out
    in turn."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    place = np.empty(len(labels), np.int64)
    place[order] = np.arange(len(labels)) % folds
    return [(np.flatnonzero(place != k), np.flatnonzero(place == k)) for k in range(folds)]


def _logits(fitted: Floats, own: Floats, x: Floats) -> Floats:
    classes = own.shape[1]
    weights = fitted[1 + classes :].reshape(-1, classes)
    logits: Floats = fitted[0] * own + fitted[1 : 1 + classes] + x @ weights
    return logits


def _fit(
    own: Floats, x: Floats, labels: NDArray[np.int64], strength: float, start: Floats | None = None
) -> Floats:
    """(a, b, w) as one vector; x has nearly orthogonal columns, so a diagonal scaling is a good
    preconditioner."""
    from scipy.optimize import minimize

    rows, directions = x.shape
    classes = own.shape[1]
    scale = np.concatenate(
        [
            [1 / np.sqrt(1 + 0.1 * (own**2).sum())],
            np.full(classes, 1 / np.sqrt(0.2 * rows)),
            np.repeat(1 / np.sqrt(strength + 0.2 * (x**2).sum(0)), classes),
        ]
    )
    onehot = np.eye(classes)[labels]

    def loss(scaled: Floats) -> tuple[float, Floats]:
        fitted = scaled * scale
        slope = fitted[0]
        level = fitted[1 : 1 + classes]
        weights = fitted[1 + classes :].reshape(directions, classes)
        logits = slope * own + level + x @ weights
        error = softmax(logits) - onehot
        penalty = (
            (slope - 1) ** 2 / 2 + strength * (weights**2).sum() / 2 + 0.005 * (level**2).sum()
        )
        gradient = np.concatenate(
            [
                [(error * own).sum() + slope - 1],
                error.sum(0) + 0.01 * level,
                (x.T @ error + strength * weights).ravel(),
            ]
        )
        return float(log_loss(logits, labels).sum() + penalty), gradient * scale

    first = np.r_[1.0, np.zeros(classes * (directions + 1))] if start is None else start
    options = {"maxiter": 200, "ftol": 1e-7}
    solved = minimize(loss, first / scale, jac=True, method="L-BFGS-B", options=options)
    vector: Floats = solved.x * scale
    return vector


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
    p = model.predict(own.cpu().double().numpy(), _side_by_side(query, senders))
    return torch.from_numpy(p).float().to(query.device)


def log_rates(labels: Tensor, classes: int) -> Tensor:
    """Log class rates (Z,), every class counted half a row more."""
    counts = torch.bincount(labels, minlength=classes) + 0.5
    return (counts / counts.sum()).log()


def _fitted(owner: LabelOwner, senders: tuple[int, ...], with_own: bool) -> Joint:
    """The joint model of these parties; it is fitted once."""
    key = ("joint", senders, with_own)
    if key not in owner.cache:
        blocks = owner.memory["embeddings"]
        labels = owner.labels
        rows = torch.arange(len(labels), device=labels.device)  # places among the shared rows
        if owner.further is not None:
            held = owner.further.shared[list(senders)].any(0) & (owner.further.labels >= 0)
            blocks = torch.cat([blocks, owner.memory["further"][:, held]], 1)
            labels = torch.cat([labels, owner.further.labels[held]])
            rows = torch.cat([rows, len(owner.labels) + held.nonzero()[:, 0]])
        if with_own:
            own = owner.memory["own.shared"][rows]
        else:
            own = log_rates(labels, owner.classes).expand(len(labels), -1)
        owner.cache[key] = fit_joint(
            own.cpu().double().numpy(),
            _side_by_side(blocks, senders),
            labels.cpu().numpy(),
            seed=owner.key % 2**31,
            mix=0.0 if "scores" in owner.memory else MIX,  # scores are evidence: they add up
        )
    model: Joint = owner.cache[key]
    return model


def _side_by_side(blocks: Tensor, senders: Sequence[int]) -> Floats:
    """(M, n, d) -> (n, senders * d)."""
    together: Floats = blocks[list(senders)].movedim(0, 1).flatten(1).cpu().double().numpy()
    return together
