"""Vertical logistic regression: the optimum of the pooled columns, and what its residuals give
away."""

import numpy as np
import pytest
import torch

from protoevfl.messages import Residuals
from protoevfl.methods.vertical_logistic import VerticalLogistic
from protoevfl.rows import sources
from tests.methods.play import accuracy, any_subset, play, played, same_numbers

TINY = {"rounds": 5, "path_rounds": 2, "folds": 2}


def test_engines_give_the_same_numbers_for_every_subset() -> None:
    same_numbers("vertical_logistic", TINY)
    any_subset("vertical_logistic", TINY)


def test_residuals_go_down_and_scores_come_up() -> None:
    run = played("vertical_logistic", TINY)
    assert run.crossed() == {("down", "Residuals"), ("up", "Embeddings")}
    assert run.shapes("Embeddings", "values") == {(40, 10)}


def test_residuals_give_labels_away() -> None:
    run = played("vertical_logistic", TINY)
    labels = run.worlds[0].owner.labels
    last = [
        q for r, party, q, _ in run.transcript if (r, party) == (0, 1) and isinstance(q, Residuals)
    ][-1]
    assert torch.equal(last.gradients.argmin(1), labels)


def test_it_reaches_the_optimum_of_the_pooled_columns() -> None:
    """Same features, same objective, scikit-learn; softmax over classes has the same penalty."""
    from sklearn.linear_model import LogisticRegression

    run = play("vertical_logistic", {"strength": 30.0, "rounds": 300})
    method = run.method
    assert isinstance(method, VerticalLogistic)
    world = run.worlds[0]
    parts = {}
    for members, cohort in run.engine.members():  # type: ignore[union-attr]
        for g, (r, party) in enumerate(members):
            if r == 0:
                parts[party] = [
                    method.features(cohort, rows)[g]
                    for rows in (cohort.rows.aligned, cohort.rows.query)
                ]
    x, query = (torch.cat([parts[m][i] for m in sorted(parts)], 1).numpy() for i in (0, 1))
    model = LogisticRegression(C=1 / 30.0, max_iter=2000, tol=1e-8).fit(
        x, world.owner.labels.numpy()
    )
    np.testing.assert_allclose(run.predict()[0].numpy(), model.predict_proba(query), atol=5e-3)


def test_columns_that_repeat_each_other_are_no_trouble() -> None:
    if not sources.available("credit"):
        pytest.skip("needs the Credit data")
    run = play("vertical_logistic", TINY, dataset="credit", aligned=100, pool=100)
    assert all(bool(p.isfinite().all()) for p in run.predict())


def test_learns() -> None:
    assert accuracy(play("vertical_logistic", {"rounds": 50})) > 0.6
