"""A random forest as plain tensors: scikit-learn fits, the trees are walked without it.

    p(z | x) = mean over the trees of the class rates in the leaf that x reaches

Its errors are of another kind than those of boosting: every tree is grown by itself, on half of the
rows and with large leaves, so its probabilities are drawn to the class rates but hardly follow
chance. The tensors are those of `boosting`, except

    value   (members, nodes, Z)   class rates
    root    (members, trees)
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from protoevfl.methods.boosting import leaf_sums

NAMES = ("feature", "threshold", "left", "right", "value", "leaf", "root")
TREES = 80
MOST_ROWS = 4000  # a tree sees half of the rows and at most so many: its time stays bounded
LEAVES = 83  # rows of a tree for each row that a leaf must have
COLUMNS = 0.3  # share of columns looked at in each split


def fit_forest(x: NDArray[np.float32], y: NDArray[np.int64], seed: int) -> Any:
    """A fitted scikit-learn forest on rows x (n, D) with classes y (n,)."""
    from sklearn.ensemble import RandomForestClassifier

    drawn = max(1, min(MOST_ROWS, len(x) // 2))
    model = RandomForestClassifier(
        TREES,
        max_samples=drawn,
        min_samples_leaf=max(1, round(drawn / LEAVES)),
        max_features=COLUMNS,
        random_state=seed % 2**31,
    )
    return model.fit(x, y)


def as_tensors(models: Sequence[Any], classes: int) -> dict[str, Tensor]:
    """The trees of several forests of equally many trees."""
    parts = [_one(model, classes) for model in models]
    return {name: pad_sequence([p[name] for p in parts], batch_first=True) for name in NAMES}


def _one(model: Any, classes: int) -> dict[str, Tensor]:
    trees = [estimator.tree_ for estimator in model.estimators_]
    first = np.cumsum([0, *(tree.node_count for tree in trees)])
    leaf = np.concatenate([tree.children_left < 0 for tree in trees])
    value = np.zeros((len(leaf), classes), np.float32)
    value[:, model.classes_.astype(int)] = np.concatenate([tree.value[:, 0] for tree in trees])
    below = {
        "left": [tree.children_left + at for tree, at in zip(trees, first, strict=False)],
        "right": [tree.children_right + at for tree, at in zip(trees, first, strict=False)],
    }
    arrays = {
        "feature": np.where(leaf, 0, np.concatenate([tree.feature for tree in trees])),
        "threshold": np.concatenate([tree.threshold for tree in trees]),
        **{name: np.where(leaf, 0, np.concatenate(nodes)) for name, nodes in below.items()},
        "value": value,
        "leaf": leaf,
        "root": first[:-1].astype(np.int64),
    }
    return {name: torch.from_numpy(np.ascontiguousarray(arrays[name])) for name in NAMES}


def scores(trees: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Log-probabilities (members, n, Z) of rows x (n, D); a class no leaf knows has -inf."""
    rows = x.double().cpu()
    members = [{name: trees[name][k] for name in NAMES} for k in range(len(trees["root"]))]
    sums = [leaf_sums(own, rows, own["root"]) / len(own["root"]) for own in members]
    return torch.stack(sums).log().float()
