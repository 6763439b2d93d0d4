"""Metrics against scikit-learn and brute force, and the record's exact keys."""

import itertools
import json

import pytest
import sklearn.metrics as reference
import torch
from torch import Tensor

from protoevfl.core.metrics import (
    auc,
    balanced_accuracy,
    effective_rank,
    evaluate,
    expected_calibration_error,
    harmonic_mean,
    macro_f1,
    matched_accuracy,
    per_class_recall,
)
from tests.bench.fields import METRICS

KEYS = METRICS | {"brier", "calibration_error", "mean_rates"}


def sample(classes: int, rows: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (rows,), generator=g)
    logits = torch.randn(rows, classes, generator=g) + 1.5 * torch.eye(classes)[labels]
    return logits.softmax(-1), labels


@pytest.mark.parametrize("classes", [2, 5])
def test_record_equals_scikit_learn(classes: int) -> None:
    p, y = sample(classes)
    r, guess = evaluate(p, y, unseen=[1]), p.argmax(1)
    assert set(r) == KEYS
    json.dumps(r)
    assert r["accuracy"] == pytest.approx(reference.accuracy_score(y, guess))
    assert r["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(y, guess))
    assert r["macro_f1"] == pytest.approx(reference.f1_score(y, guess, average="macro"))
    assert r["per_class_recall"] == pytest.approx(reference.recall_score(y, guess, average=None))
    hidden = y == 1
    assert r["seen_accuracy"] == pytest.approx(reference.accuracy_score(y[~hidden], guess[~hidden]))
    assert r["unseen_recall"] == pytest.approx(reference.accuracy_score(y[hidden], guess[hidden]))
    assert r["harmonic_mean"] == pytest.approx(
        harmonic_mean(r["seen_accuracy"], r["unseen_recall"])
    )
    assert r["classes_predicted"] == len(set(guess.tolist()))
    expected = reference.roc_auc_score(y, p[:, 1]) if classes == 2 else None
    assert r["auc"] == pytest.approx(expected)


def test_auc_counts_ties_half_and_needs_both_classes() -> None:
    scores = torch.tensor([0.1, 0.5, 0.5, 0.5, 0.9])
    y = torch.tensor([0, 0, 1, 1, 0])
    assert auc(scores, y) == pytest.approx(reference.roc_auc_score(y, scores))
    assert auc(scores, torch.ones(5).long()) is None


def test_nothing_unseen() -> None:
    p, y = sample(4)
    r = evaluate(p, y)
    assert r["unseen_recall"] is None
    assert r["harmonic_mean"] is None
    assert r["seen_accuracy"] == r["accuracy"]


def test_a_class_that_does_not_occur() -> None:
    guess, y = torch.tensor([0, 1, 3]), torch.tensor([0, 1, 1])
    assert per_class_recall(guess, y, 5) == [1.0, 0.5, None, None, None]
    assert balanced_accuracy(guess, y, 5) == 0.75
    assert macro_f1(guess, y, 5) == pytest.approx(reference.f1_score(y, guess, average="macro"))


def test_no_rows_one_row_one_class() -> None:
    empty = evaluate(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    assert empty["accuracy"] is None
    assert empty["balanced_accuracy"] is None
    assert empty["classes_predicted"] == 0
    one = evaluate(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64))
    assert one["accuracy"] == one["balanced_accuracy"] == one["macro_f1"] == 1


def test_harmonic_mean() -> None:
    assert harmonic_mean(0.0, 0.0) == 0
    assert harmonic_mean(0.9, 0.0) == 0
    assert harmonic_mean(0.5, 1.0) == pytest.approx(2 / 3)
    assert harmonic_mean(None, 1.0) is None


def test_renaming_classes_renames_the_record() -> None:
    p, y = sample(4)
    new_name = torch.tensor([2, 0, 3, 1])
    r, moved = (
        evaluate(p, y, [1]),
        evaluate(p[:, new_name.argsort()], new_name[y], [int(new_name[1])]),
    )
    recall = [moved["per_class_recall"][z] for z in new_name.tolist()]
    assert recall == r["per_class_recall"]
    assert [moved["mean_rates"][z] for z in new_name.tolist()] == pytest.approx(r["mean_rates"])
    for name in KEYS - {"per_class_recall", "mean_rates"}:
        assert moved[name] == pytest.approx(r[name]), name


def test_matched_accuracy_is_the_best_renaming_of_the_unseen_names() -> None:
    p, y = sample(6, seed=4)
    guess, unseen = p.argmax(1), [1, 3, 4]
    swapped = torch.tensor([0, 4, 2, 1, 3, 5])[guess]
    best = 0.0
    for order in itertools.permutations(unseen):
        name = torch.arange(6)
        name[torch.tensor(unseen)] = torch.tensor(order)
        rows = torch.isin(y, torch.tensor(unseen))
        best = max(best, float((name[swapped] == y)[rows].double().mean()))
    assert matched_accuracy(swapped, y, unseen) == pytest.approx(best)
    assert matched_accuracy(swapped, y, unseen) == pytest.approx(matched_accuracy(guess, y, unseen))
    assert matched_accuracy(guess, y, []) is None


def test_effective_rank_knows_the_dimension() -> None:
    g = torch.Generator().manual_seed(0)
    wide = torch.randn(3, 4000, 8, generator=g)
    assert effective_rank(wide).tolist() == pytest.approx([8] * 3, abs=0.05)
    thin = torch.randn(500, 2, generator=g) @ torch.randn(2, 8, generator=g)
    assert 1 < float(effective_rank(thin)) <= 2.001
    singular = torch.linalg.svdvals((thin - thin.mean(0)).double())[:2]
    share = singular / singular.sum()
    assert float(effective_rank(thin)) == pytest.approx(
        float((-(share * share.log()).sum()).exp()), rel=1e-4
    )
    torch.testing.assert_close(effective_rank(wide[0] * 1e30), effective_rank(wide)[0])


def test_effective_rank_of_a_collapse_is_zero() -> None:
    same = torch.randn(8, generator=torch.Generator().manual_seed(1)).expand(100, 8)
    rounding = 1 + 1e-7 * torch.randn(100, 8, generator=torch.Generator().manual_seed(2))
    assert float(effective_rank(same)) == 0
    assert float(effective_rank(same * rounding)) == 0
    assert float(effective_rank(torch.zeros(1, 8))) == 0


def test_calibration_error_equals_a_loop() -> None:
    p, y = sample(3, rows=200)
    bins = [[] for _ in range(15)]  # type: list[list[tuple[float, bool]]]
    for row, label in zip(p.tolist(), y.tolist()):
        bins[min(14, int(max(row) * 15))].append((max(row), row.index(max(row)) == label))
    gap = sum(abs(sum(hit for _, hit in b) - sum(c for c, _ in b)) for b in bins) / 200
    assert expected_calibration_error(p, y) == pytest.approx(gap, abs=1e-6)
    assert expected_calibration_error(torch.eye(3)[y], y) == 0
