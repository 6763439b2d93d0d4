"""The active party's own model of a table: boosting with large and with small trees and a random
forest, as far as each is worth it.

    log p(z | x) = log softmax_z ( sum_j a_j log p_j(z | x) + c log rate_z )      a_j >= 0

The weights a, c make the cross-fitted log-loss of the labelled rows least. Columns that interact
need large trees, columns with little to say small ones, and a forest errs in another way than both:
no single choice is good on all tables, and the weights follow the table. Kinds of hardly any weight
are not kept.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.methods import boosting, forest

BOOSTING: tuple[dict[str, Any], ...] = (
    {"learning_rate": 0.06, "max_iter": 100},
    {
        "learning_rate": 0.08,
        "max_iter": 120,
        "max_leaf_nodes": 31,
        "min_samples_leaf": 20,
        "l2_regularization": 5.0,
        "max_features": 0.5,
    },
    {
        "learning_rate": 0.03,
        "max_iter": 200,
        "max_leaf_nodes": 8,
        "min_samples_leaf": 60,
        "l2_regularization": 10.0,
        "max_features": 0.5,
    },
)
FLOOR = 1e-3  # probabilities are kept this far from 0 and 1 where they become scores
LEAST = 0.1  # kinds of less weight are left out
PRIOR = 0.3  # how far the weights are from equal ones beforehand
FOREST = "forest."

Fit = Callable[[NDArray[np.float32], NDArray[np.int64], int], Any]


def floored(log_p: Tensor) -> Tensor:
    """Log-probabilities kept away from certainty, normalised again."""
    return log_p.exp().clamp(FLOOR, 1 - FLOOR).log().log_softmax(1)


def fit_trees(
    rows: Tensor, labels: Tensor, fold: Tensor, classes: int, seed: int
) -> tuple[dict[str, Tensor], Tensor]:
    """(trees as tensors, cross-fitted scores (n, Z)); member k learns from the rows outside
    fold k."""
    x, y, place = (tensor.cpu().numpy() for tensor in (rows, labels, fold))
    kinds: list[Fit] = [partial(boosting.fit_boosting, settings=setting) for setting in BOOSTING]
    found = [_cross_fit(fit, x, y, place, classes, seed) for fit in (*kinds, forest.fit_forest)]
    honest = torch.stack([scores for _, scores in found])  # (J, n, Z)
    weights, level = weigh(honest, labels.cpu())
    *trees, grown = (models for models, _ in found)
    used = [j for j in range(len(trees)) if weights[j]] or [0]
    parts = [boosting.as_tensors(trees[j], classes) for j in used]
    kept = boosting.combined(parts, [weights[j] for j in used])
    shift = level * _log_rates(labels.cpu(), classes)
    kept["base"] = kept["base"] + shift
    if weights[-1]:
        tensors = forest.as_tensors(grown, classes)
        kept |= {f"{FOREST}{name}": tensor for name, tensor in tensors.items()}
        kept[f"{FOREST}weight"] = torch.tensor(weights[-1])
    summed = torch.tensordot(torch.tensor(weights).to(honest), honest, 1) + shift
    return kept, floored(summed.log_softmax(1)).float()


def _cross_fit(
    fit: Fit,
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    place: NDArray[np.int64],
    classes: int,
    seed: int,
) -> tuple[list[Any], Tensor]:
    """(one model a fold, log-probabilities (n, Z) of each row by the model that left it out)."""
    models = []
    p = np.full((len(x), classes), FLOOR)
    for k in range(int(place.max()) + 1):
        out = place == k
        model = fit(x[~out], y[~out], seed + k)
        p[np.ix_(out, model.classes_)] = boosting.probabilities(model, x[out])
        models.append(model)
    return models, floored(torch.from_numpy(p).log())


def tree_scores(kept: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """Log-probabilities (members, n, Z) of rows (n, D) by the kept trees."""
    scores = boosting.scores({name: kept[name].cpu() for name in boosting.NAMES}, rows)
    if f"{FOREST}weight" not in kept:
        return scores
    trees = {name: kept[f"{FOREST}{name}"].cpu() for name in forest.NAMES}
    grown = forest.scores(trees, rows).clamp(min=float(np.log(FLOOR)))
    return (scores + kept[f"{FOREST}weight"].cpu() * grown).log_softmax(-1)


def weigh(scores: Tensor, labels: Tensor) -> tuple[list[float], float]:
    """(weights of the kinds, weight of the log class rates) by the log-loss of cross-fitted
    scores (J, n, Z); kinds of hardly any weight get none and the rest are weighed again."""
    used = list(range(len(scores)))
    while True:
        found, level = _weights(scores[used], labels)
        faint = [j for j, weight in zip(used, found, strict=True) if weight < LEAST]
        if not faint or len(faint) == len(used):
            break
        used = [j for j in used if j not in faint]
    weights = dict(zip(used, found, strict=True))
    return [weights.get(j, 0.0) for j in range(len(scores))], level


def _weights(scores: Tensor, labels: Tensor) -> tuple[list[float], float]:
    """The likeliest weights; few rows leave them near equal ones."""
    from scipy.optimize import minimize

    kinds, _, classes = scores.shape
    rates = _log_rates(labels, classes).expand(scores.shape[1:])
    logs = torch.cat([scores, rates[None]]).double()  # (J + 1, n, Z)
    onehot = F.one_hot(labels, classes)
    first = np.array([*[1 / kinds] * kinds, 0.0])

    def loss(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        log_p = torch.tensordot(torch.from_numpy(values), logs, 1).log_softmax(1)
        apart = (values - first) / PRIOR
        total = -float((log_p * onehot).sum()) + float((apart**2).sum()) / 2
        slope = torch.tensordot(logs, log_p.exp() - onehot, 2).numpy() + apart / PRIOR
        return total, slope

    bounds = [*[(0.0, None)] * kinds, (None, None)]
    found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds).x.tolist()
    return found[:-1], found[-1]


def _log_rates(labels: Tensor, classes: int) -> Tensor:
    """Log class rates (Z,), every class counted half a row more."""
    counts = torch.bincount(labels, minlength=classes).double() + 0.5
    return (counts / counts.sum()).log()
