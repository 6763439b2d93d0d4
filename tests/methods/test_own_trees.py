"""Weights of the kinds of trees: what cross-fitting shows to be worth nothing is left out, and the
kept tensors score as the models together do."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.methods import boosting, forest, own_trees
from protoevfl.methods.own_trees import FOREST, fit_trees, tree_scores, weigh

FEW_TREES = ({"learning_rate": 0.3, "max_iter": 10}, {"learning_rate": 0.1, "max_iter": 5})


def truth(rows: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Log-probabilities (n, Z) and labels drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    log_p = (1.5 * torch.randn(rows, classes, generator=generator)).log_softmax(1)
    return log_p, torch.multinomial(log_p.exp(), 1, generator=generator)[:, 0]


def noise(rows: int, classes: int, seed: int = 7) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, classes, generator=generator).log_softmax(1)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_true_probabilities_get_all_the_weight(classes: int) -> None:
    log_p, labels = truth(8000, classes)
    weights, level = weigh(torch.stack([noise(8000, classes), log_p]), labels)
    assert weights[0] == 0
    assert weights[1] == pytest.approx(1, abs=0.06)
    assert level == pytest.approx(0, abs=0.2)


def test_scores_that_are_too_sure_are_drawn_to_the_class_rates() -> None:
    log_p, labels = truth(8000, 2)
    rare = (labels == 0) | (torch.arange(8000) % 5 == 0)
    log_p, labels = log_p[rare] + torch.tensor([1.0, 0.2]).log(), labels[rare]
    sure = (2 * log_p).log_softmax(1)
    (weight, none), level = weigh(torch.stack([sure, noise(len(labels), 2)]), labels)
    assert weight == pytest.approx(0.5, abs=0.05)
    assert none == 0
    rates = (torch.bincount(labels) / len(labels)).log()
    mean = (weight * sure + level * rates).softmax(1).mean(0)
    torch.testing.assert_close(mean, rates.exp(), atol=0.01, rtol=0)


def test_the_weights_make_the_log_loss_least() -> None:
    """Against a fine grid; with so many rows what is thought beforehand counts for nothing."""
    log_p, labels = truth(4000, 2)
    blurred = torch.stack([log_p + 0.7 * noise(4000, 2, 1), log_p + 0.7 * noise(4000, 2, 2)])

    def loss(weights: list[float], level: float = 0.0) -> float:
        rates = (torch.bincount(labels) / 4000).log()
        summed = torch.tensordot(torch.tensor(weights), blurred, 1) + level * rates
        return float(F.cross_entropy(summed, labels))

    found = loss(*weigh(blurred, labels))
    grid = np.linspace(0, 1.2, 25)
    assert found < min(loss([float(a), float(b)]) for a in grid for b in grid) + 1e-4


def test_few_rows_leave_the_weights_near_equal_ones() -> None:
    log_p, _ = truth(6, 2)
    labels = log_p.argmax(1)  # told apart without error: the log-loss alone would have no end
    weights, _ = weigh(torch.stack([log_p, log_p]), labels)
    assert all(0.3 < weight < 1.0 for weight in weights)


def rows(count: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randperm(count, generator=generator) % classes
    x = torch.randn(count, 4, generator=generator)
    x[:, 0] += 1.5 * y
    return x, y, torch.arange(count) % 5


@pytest.mark.parametrize("classes", [2, 3])
def test_the_kept_tensors_are_the_weighted_models(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = [0.6, 0.3, 0.4], -0.2
    monkeypatch.setattr(own_trees, "weigh", lambda scores, labels: weights)
    monkeypatch.setattr(own_trees, "BOOSTING", FEW_TREES)
    x, y, fold = rows(300, classes)
    kept, honest = fit_trees(x, y, fold, classes, 3)
    new, _, _ = rows(50, classes, 1)
    found = tree_scores(kept, new)
    out = fold == 2
    models = [boosting.fit_boosting(x[~out].numpy(), y[~out].numpy(), 5, s) for s in FEW_TREES]
    models.append(forest.fit_forest(x[~out].numpy(), y[~out].numpy(), 5))
    parts = [torch.from_numpy(model.predict_proba(new.numpy())).log() for model in models]
    counts = torch.bincount(y).double() + 0.5
    summed = sum(w * part for w, part in zip(weights[0], parts, strict=True))
    wanted = (summed + weights[1] * (counts / counts.sum()).log()).log_softmax(1)
    torch.testing.assert_close(found[2], wanted.float(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(honest[out], tree_scores(kept, x[out])[2], atol=1e-4, rtol=1e-4)


def test_kinds_without_weight_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_trees, "BOOSTING", FEW_TREES)
    x, y, fold = rows(300, 2)
    nodes = {}
    for weights in ([0.5, 0.5, 0.3], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]):
        monkeypatch.setattr(own_trees, "weigh", lambda scores, labels, w=weights: (w, 0.0))
        kept, _ = fit_trees(x, y, fold, 2, 3)
        nodes[tuple(weights)] = kept["leaf"].shape[1]
        assert any(name.startswith(FOREST) for name in kept) == bool(weights[-1])
        assert tree_scores(kept, x).isfinite().all()
    assert nodes[1.0, 0.0, 0.0] < nodes[0.5, 0.5, 0.3]
