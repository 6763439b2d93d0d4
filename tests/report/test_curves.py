"""Curves: what scikit-learn and the definitions say, on scores with and without ties."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from protoevfl.report import curves

RANDOM = np.random.default_rng(0)
HITS = RANDOM.random(5000) < 0.2
SCORES = np.clip(0.2 + 0.15 * HITS + 0.1 * RANDOM.standard_normal(5000), 0, 1)
TIED = SCORES.round(1)


@pytest.mark.parametrize("scores", [SCORES, TIED], ids=["smooth", "tied"])
def test_the_area_under_the_thinned_roc_curve_is_the_auc(scores: curves.Floats) -> None:
    points = curves.roc(scores, HITS)
    assert len(points) <= curves.MOST + 2
    assert points[0] == (0, 0)
    assert points[-1] == (1, 1)
    area = np.trapezoid([y for _, y in points], [x for x, _ in points])
    assert area == pytest.approx(roc_auc_score(HITS, scores), abs=2e-3)


def test_precision_begins_with_the_row_named_first_and_ends_at_the_rate() -> None:
    points = curves.precision_recall(SCORES, HITS)
    assert points[-1] == pytest.approx((1, HITS.mean()))
    first = bool(HITS[SCORES.argmax()])
    assert points[0][1] == float(first)
    assert all(np.diff([x for x, _ in points]) >= 0)


def test_gains_find_everything_at_the_end_and_ties_are_taken_together() -> None:
    points = curves.gains(SCORES, HITS)
    assert points[0] == (0, 0)
    assert points[-1] == (1, 1)
    best = np.sort(SCORES)[::-1][: len(SCORES) // 10].min()
    share = HITS[SCORES >= best].sum() / HITS.sum()
    assert curves.found_within(points, 0.1) == pytest.approx(share, abs=0.01)
    same = curves.gains(np.full(100, 0.3), np.arange(100) < 5)
    assert same == [(0, 0), (1, 1)]  # no order among equals: as chance finds them


def test_calibrated_probabilities_lie_near_the_diagonal() -> None:
    said = RANDOM.random(20_000)
    points = curves.calibration(said, RANDOM.random(20_000) < said)
    assert len(points) == curves.BINS
    assert all(abs(x - y) < 0.05 for x, y in points)
    lying = curves.calibration(said, RANDOM.random(20_000) < said / 2)
    assert lying[-1][1] < 0.6


def test_few_rows_give_few_bins() -> None:
    assert len(curves.calibration(np.array([0.2, 0.9]), np.array([False, True]))) == 2
