"""Honest probabilities, the balanced rule and paired gains, against counting by hand and
scikit-learn."""

import pytest
import torch

from protoevfl.core import decisions, metrics


def drawn(rows: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=random)
    logits = torch.randn(rows, classes, generator=random)
    return (logits + torch.nn.functional.one_hot(labels, classes)).softmax(1), labels


def test_brier_of_two_classes_is_scikit_learns_and_of_more_the_sum_over_classes() -> None:
    from sklearn.metrics import brier_score_loss

    p, y = drawn(200, 2, 0)
    assert decisions.brier(p, y) == pytest.approx(brier_score_loss(y, p[:, 1]))
    certain = torch.eye(3)[[0, 1, 2]]
    assert decisions.brier(certain, torch.tensor([0, 1, 2])) == 0
    assert decisions.brier(certain, torch.tensor([1, 1, 2])) == pytest.approx(2 / 3)


def test_the_balanced_rule_divides_by_the_rates() -> None:
    p = torch.tensor([[0.7, 0.3], [0.8, 0.2], [0.95, 0.05]])
    assert decisions.balanced_choice(p, torch.tensor([0.9, 0.1])).tolist() == [1, 1, 0]
    assert torch.equal(decisions.balanced_choice(p, torch.tensor([0.5, 0.5])), p.argmax(1))


def test_a_class_without_a_rate_counts_as_the_rarest() -> None:
    p = torch.tensor([[0.5, 0.2, 0.3]])
    assert decisions.balanced_choice(p, torch.tensor([0.8, 0.2, 0.0])).tolist() == [2]


def test_thresholds_choose_a_class_from_its_probability_on() -> None:
    rates = torch.ones(3) / 3
    p = torch.tensor([[0.6, 0.3, 0.1], [0.6, 0.2, 0.2], [0.4, 0.35, 0.25], [0.7, 0.2, 0.1]])
    # classes 1 and 2 are named from .3 and .2 on; of both the one further above its threshold
    assert decisions.choose(p, {1: 0.3, 2: 0.2}, rates).tolist() == [1, 2, 2, 0]
    # a class below its threshold is never named while another one is left
    assert decisions.choose(p, {0: 0.65}, rates).tolist() == [1, 1, 1, 0]
    # with a threshold for every class and none of them reached, the likeliest
    assert decisions.choose(p, dict.fromkeys(range(3), 0.9), rates).tolist() == [0, 0, 0, 0]


def test_a_threshold_of_one_half_is_the_likeliest_of_two_classes() -> None:
    p, _ = drawn(100, 2, 3)
    likeliest = decisions.choose(p, "likeliest", p[0])
    assert torch.equal(decisions.choose(p, {1: 0.5}, p[0]), likeliest)
    assert torch.equal(likeliest, p.argmax(1))


def test_weights_of_one_give_the_plain_measures_with_ties() -> None:
    p, y = drawn(300, 2, 1)
    p = (p * 20).round() / 20
    ones = torch.ones(1, 300, dtype=torch.float64)
    assert float(decisions.weighted_auc(p, y, ones)) == pytest.approx(metrics.auc(p[:, 1], y))
    assert float(decisions._weighted_accuracy(p, y, ones)) == pytest.approx(
        metrics.accuracy(p.argmax(1), y)
    )


@pytest.mark.parametrize(("classes", "measure"), [(2, "auc"), (5, "accuracy")])
def test_a_gain_is_paired_and_has_an_interval_around_it(classes: int, measure: str) -> None:
    good, y = drawn(1000, classes, 2)
    noise = torch.rand(1000, classes, generator=torch.Generator().manual_seed(3))
    gain = decisions.gain(good, noise, y)
    assert gain["measure"] == measure
    assert 0 < float(gain["low"]) < float(gain["difference"]) < float(gain["high"])
    assert decisions.gain(good, good, y) == {
        "measure": measure,
        "difference": 0.0,
        "low": 0.0,
        "high": 0.0,
    }
