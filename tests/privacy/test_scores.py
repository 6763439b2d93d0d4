"""Scores: known rows do not count, names may be matched, intervals have the right width."""

import math

import torch
from sklearn.metrics import normalized_mutual_info_score

from protoevfl.privacy.scores import interval, matched_accuracy, nmi, score
from protoevfl.privacy.view import Guess, Known


def test_known_rows_do_not_count() -> None:
    labels = torch.tensor([0, 1, 0, 1])
    known = Known(torch.tensor([0, -1, -1, -1]))
    found = score(Guess(torch.tensor([1, 1, 0, 0])), labels, known, 2)
    assert math.isclose(found.accuracy, 2 / 3)


def test_groups_are_scored_by_their_best_names() -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    turned = (labels + 1) % 3
    none = Known(torch.full((6,), -1))
    assert score(Guess(turned), labels, none, 3).accuracy == 0.0
    assert score(Guess(turned, named=False), labels, none, 3).accuracy == 1.0
    assert matched_accuracy(turned, labels, 3) == 1.0


def test_nmi_equals_scikit_learn() -> None:
    g = torch.Generator().manual_seed(0)
    a, b = torch.randint(4, (200,), generator=g), torch.randint(4, (200,), generator=g)
    b = torch.where(torch.rand(200, generator=g) < 0.5, a, b)
    assert math.isclose(nmi(a, b, 4), normalized_mutual_info_score(a, b), abs_tol=1e-9)


def test_interval_of_one_value_is_unknown() -> None:
    mean, half = interval([0.4])
    assert mean == 0.4
    assert math.isnan(half)
