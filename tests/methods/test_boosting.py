"""Boosted trees as tensors: scikit-learn's probabilities without scikit-learn, and nothing
pickled."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from protoevfl.methods import boosting
from protoevfl.methods.boosting import as_tensors, fit_boosting, scores

FEW_TREES = {"learning_rate": 0.3, "max_iter": 8}


def table(rows: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows (n, 5) that carry their class: two numbers, one of few values, one constant, noise."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(rows) % classes)
    x = rng.normal(size=(rows, 5))
    x[:, 0] += y
    x[:, 2] = np.round(x[:, 2])
    x[:, 3] = 7.0
    return x.astype(np.float32), y


@pytest.mark.parametrize(
    "settings",
    [
        FEW_TREES,
        {"max_iter": 1},
        {"max_iter": 3, "max_depth": 1},
        {"max_iter": 3, "max_leaf_nodes": 2},
        {"max_iter": 3, "max_leaf_nodes": 255, "min_samples_leaf": 1},
        {"max_iter": 3, "min_samples_leaf": 10_000},  # no split is allowed: every tree is one leaf
        {"max_iter": 6, "max_leaf_nodes": 8, "l2_regularization": 10.0, "max_features": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_probabilities_are_those_of_scikit_learn(
    classes: int, settings: dict[str, Any]
) -> None:
    x, y = table(200, classes)
    model = fit_boosting(x, y, 1, settings)
    # rows learnt from lie next to the thresholds
    new = np.concatenate([table(100, classes, 1)[0], x, 100 * x])
    (found,) = scores(as_tensors([model], classes), torch.from_numpy(new))
    np.testing.assert_allclose(found.exp().numpy(), model.predict_proba(new), atol=1e-6)


def test_members_of_different_size_stand_side_by_side() -> None:
    x, y = table(150, 3)
    models = [fit_boosting(x, y, 0, {"max_iter": n, "max_leaf_nodes": 2 + n}) for n in (1, 9, 4)]
    together = scores(as_tensors(models, 3), torch.from_numpy(x))
    assert together.shape == (3, 150, 3)
    for model, found in zip(models, together, strict=True):
        np.testing.assert_allclose(found.exp().numpy(), model.predict_proba(x), atol=1e-6)


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_class_that_a_member_never_saw_has_no_probability_there(absent: int) -> None:
    x, y = table(150, 3)
    seen = y != absent
    models = [fit_boosting(x[seen], y[seen], 0, FEW_TREES), fit_boosting(x, y, 0, FEW_TREES)]
    partial, whole = scores(as_tensors(models, 3), torch.from_numpy(x)).exp().numpy()
    assert (partial[:, absent] == 0).all()
    others = [z for z in range(3) if z != absent]
    np.testing.assert_allclose(partial[:, others], models[0].predict_proba(x), atol=1e-6)
    np.testing.assert_allclose(whole, models[1].predict_proba(x), atol=1e-6)


@pytest.mark.parametrize("with_another", [False, True])
def test_rows_of_one_class_give_a_member_that_is_sure_of_it(with_another: bool) -> None:
    x, y = table(60, 2)
    models = [fit_boosting(x[y == 1], y[y == 1], 0, FEW_TREES)]
    models += [fit_boosting(x, y, 0, FEW_TREES)] * with_another
    trees = as_tensors(models, 2)
    assert (scores(trees, torch.from_numpy(x))[0].exp() == torch.tensor([0.0, 1.0])).all()


def test_scores_do_not_depend_on_how_rows_are_cut_up(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = table(90, 3)
    trees = as_tensors([fit_boosting(x, y, 0, FEW_TREES)], 3)
    whole = scores(trees, torch.from_numpy(x))
    monkeypatch.setattr(boosting, "CHUNK", 8 * 7)
    assert torch.equal(scores(trees, torch.from_numpy(x)), whole)
    assert scores(trees, torch.zeros(0, 5)).shape == (1, 0, 3)


def test_a_file_of_plain_tensors_brings_the_trees_back(tmp_path: Path) -> None:
    x, y = table(100, 3)
    trees = as_tensors([fit_boosting(x, y, 0, FEW_TREES)], 3)
    assert set(trees) == set(boosting.NAMES)
    save_file(trees, tmp_path / "trees.safetensors")
    again = load_file(tmp_path / "trees.safetensors")
    assert torch.equal(scores(again, torch.from_numpy(x)), scores(trees, torch.from_numpy(x)))
    assert b"sklearn" not in (tmp_path / "trees.safetensors").read_bytes()
