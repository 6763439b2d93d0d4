"""Gradient boosting as plain tensors: scikit-learn fits, the trees are kept as arrays and walked
without it.

A kept run must not depend on pickled objects, so a fitted ensemble becomes tensors that safetensors
can hold:

    feature, threshold, left, right, value, leaf   (members, nodes)   all trees of a member one
    after the other
    root                                           (members, trees)   where each tree begins
    base                                           (members, Z)       the score every row starts with

raw scores  F_z(x) = base_z + sum of the leaves that x reaches in the trees of class z,
p(z | x) = softmax_z F (two classes: F is the log-odds of the second).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NODES: dict[str, tuple[str, Any]] = {  # our name -> scikit-learn's, and the type kept
    "feature": ("feature_idx", np.int64),
    "threshold": ("num_threshold", np.float64),
    "left": ("left", np.int64),
    "right": ("right", np.int64),
    "value": ("value", np.float64),
    "leaf": ("is_leaf", np.bool_),
}
NAMES = (*NODES, "root", "base")
CHUNK = 1 << 22  # (row, tree) pairs walked at a time
FEW_CELLS = 1_000_000  # below this threads wait for each other longer than they work


def fit_boosting(
    x: NDArray[np.float32], y: NDArray[np.int64], seed: int, settings: Mapping[str, Any]
) -> Any:
    """One fitted scikit-learn model on rows x (n, D) with classes y (n,); rows of one class have
    nothing to tell."""
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    if len(np.unique(y)) == 1:
        return DummyClassifier(strategy="prior").fit(x, y)
    model = HistGradientBoostingClassifier(
        random_state=seed % 2**31, early_stopping=False, **settings
    )
    with threadpool_limits(1 if x.size < FEW_CELLS else None):
        return model.fit(x, y)


def probabilities(model: Any, x: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n, seen classes) of a fitted model."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1 if x.size < FEW_CELLS else None):
        p: NDArray[np.float64] = model.predict_proba(x)
        return p


def as_tensors(models: Sequence[Any], classes: int) -> dict[str, Tensor]:
    """The trees of several fitted models as tensors; a class a model never saw gets the score
    -inf."""
    parts: list[dict[str, Tensor]] = [_one(model, classes) for model in models]
    most = {name: max(len(part[name]) for part in parts) for name in NAMES}
    return {
        name: torch.stack([_padded(part[name], most[name], name) for part in parts])
        for name in NAMES
    }


def _one(model: Any, classes: int) -> dict[str, Tensor]:
    seen = [int(z) for z in model.classes_]
    raised = {1: [], 2: seen[1:]}.get(len(seen), seen)  # the classes that have trees
    steps = model._predictors if raised else []
    roots = np.full((len(steps), classes), -1, np.int64)
    base = np.full(classes, -np.inf)
    base[seen] = 0.0
    if raised:
        base[raised] = np.asarray(model._baseline_prediction, np.float64).ravel()
    parts: dict[str, list[NDArray[Any]]] = {name: [np.zeros(0)] for name in NODES}
    total = 0
    for step, trees in enumerate(steps):
        for tree, z in zip(trees, raised, strict=True):
            roots[step, z] = total
            for name, (column, _) in NODES.items():
                parts[name].append(tree.nodes[column] + (total if name in ("left", "right") else 0))
            total += len(tree.nodes)
    flat = {name: np.concatenate(parts[name]).astype(dtype) for name, (_, dtype) in NODES.items()}
    arrays = {**flat, "root": roots.ravel(), "base": base}
    return {name: torch.from_numpy(arrays[name]) for name in NAMES}


def _padded(tensor: Tensor, length: int, name: str) -> Tensor:
    fill = -1 if name == "root" else 1 if name == "leaf" else 0
    return torch.nn.functional.pad(tensor, (0, length - len(tensor)), value=fill)


def combined(parts: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
    """One ensemble of the same members: its raw scores are the weighted sum of several."""
    whole: dict[str, list[Tensor]] = {name: [] for name in NAMES}
    before = 0  # nodes of the parts already there
    for trees, weight in zip(parts, weights, strict=True):
        changed = {
            "left": trees["left"] + before,
            "right": trees["right"] + before,
            "root": torch.where(trees["root"] < 0, -1, trees["root"] + before),
            "value": trees["value"] * weight,
            # a class never seen stays so whatever the weight
            "base": torch.where(trees["base"].isinf(), trees["base"], trees["base"] * weight),
        }
        for name, tensor in {**trees, **changed}.items():
            whole[name].append(tensor)
        before += trees["leaf"].shape[1]
    base = torch.stack(whole.pop("base")).sum(0)
    return {**{name: torch.cat(tensors, 1) for name, tensors in whole.items()}, "base": base}


def scores(trees: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Log-probabilities (members, n, Z) of rows x (n, D)."""
    classes = trees["base"].shape[1]
    rows = x.double().cpu()
    members = []
    for k in range(len(trees["base"])):
        own = {name: trees[name][k] for name in NAMES}
        roots = own["root"].view(len(own["root"]) // classes, classes)  # (trees, Z)
        raw = own["base"].expand(len(rows), -1).clone()
        for z in range(classes):
            starts = roots[:, z]
            starts = starts[starts >= 0]
            if len(starts):
                raw[:, z] += leaf_sums(own, rows, starts)
        members.append(raw.log_softmax(1))
    return torch.stack(members).float()


def leaf_sums(tree: Mapping[str, Tensor], x: Tensor, starts: Tensor) -> Tensor:
    """The sum (n, ...) of the leaves' values (nodes, ...) that each row reaches from the roots."""
    sums = x.new_zeros(len(x), *tree["value"].shape[1:])
    step = max(1, CHUNK // (len(starts) * tree["value"][0].numel()))
    for first in range(0, len(x), step):
        part = x[first : first + step]
        node = starts.expand(len(part), -1).clone()  # (rows, trees)
        while not bool(tree["leaf"][node].all()):
            goes_left = part.gather(1, tree["feature"][node]) <= tree["threshold"][node]
            down = torch.where(goes_left, tree["left"][node], tree["right"][node])
            node = torch.where(tree["leaf"][node], node, down)
        sums[first : first + step] = tree["value"][node].sum(1)
    return sums
