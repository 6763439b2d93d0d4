"""A forest as tensors: scikit-learn's probabilities without scikit-learn."""

from typing import Any

import numpy as np
import pytest
import torch

from protoevfl.methods import boosting, forest
from protoevfl.methods.forest import as_tensors, fit_forest, scores


def table(rows: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows (n, 4) that carry their class: two numbers, one of few values, one constant."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(rows) % classes)
    x = rng.normal(size=(rows, 4))
    x[:, 0] += y
    x[:, 2] = np.round(x[:, 2])
    x[:, 3] = 7.0
    return x.astype(np.float32), y


@pytest.mark.parametrize("rows", [8, 300, 3000])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_probabilities_are_those_of_scikit_learn(classes: int, rows: int) -> None:
    x, y = table(rows, classes)
    model = fit_forest(x, y, 1)
    # rows learnt from lie next to the thresholds
    new = np.concatenate([table(100, classes, 1)[0], x, 100 * x])
    (found,) = scores(as_tensors([model], classes), torch.from_numpy(new))
    np.testing.assert_allclose(found.exp().numpy(), model.predict_proba(new), atol=1e-6)


def test_members_of_different_size_stand_side_by_side() -> None:
    x, y = table(900, 3)
    models = [fit_forest(x[:rows], y[:rows], 0) for rows in (30, 900, 200)]
    together = scores(as_tensors(models, 3), torch.from_numpy(x))
    assert together.shape == (3, 900, 3)
    for model, found in zip(models, together, strict=True):
        np.testing.assert_allclose(found.exp().numpy(), model.predict_proba(x), atol=1e-6)


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_class_that_a_member_never_saw_has_no_probability_there(absent: int) -> None:
    x, y = table(150, 3)
    seen = y != absent
    model = fit_forest(x[seen], y[seen], 0)
    (found,) = scores(as_tensors([model], 3), torch.from_numpy(x)).exp().numpy()
    assert (found[:, absent] == 0).all()
    others = [z for z in range(3) if z != absent]
    np.testing.assert_allclose(found[:, others], model.predict_proba(x), atol=1e-6)


def test_rows_of_one_class_give_a_member_that_is_sure_of_it() -> None:
    x, y = table(60, 2)
    trees = as_tensors([fit_forest(x[y == 1], y[y == 1], 0), fit_forest(x, y, 0)], 2)
    assert (scores(trees, torch.from_numpy(x))[0].exp() == torch.tensor([0.0, 1.0])).all()


def test_scores_do_not_depend_on_how_rows_are_cut_up(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = table(90, 3)
    trees = as_tensors([fit_forest(x, y, 0)], 3)
    whole = scores(trees, torch.from_numpy(x))
    monkeypatch.setattr(boosting, "CHUNK", 3 * forest.TREES * 7)
    assert torch.equal(scores(trees, torch.from_numpy(x)), whole)
    assert scores(trees, torch.zeros(0, 4)).shape == (1, 0, 3)


def test_a_tree_sees_half_of_the_rows_and_a_bounded_number() -> None:
    x, y = table(20_000, 2)
    drawn = fit_forest(x, y, 0).max_samples
    assert drawn == forest.MOST_ROWS
    assert fit_forest(x[:1000], y[:1000], 0).max_samples == 500
