"""Guesses of where classes without labels hide, and which of them is believed."""

import pytest
import torch
from torch import Tensor

from protoevfl.federation.owner import LabelOwner
from protoevfl.methods import guesses
from protoevfl.methods.unseen import UnseenSettings

CENTRES = 3 * torch.eye(6)
CENTRES[5] = CENTRES[4] + 1.6 * torch.nn.functional.normalize(torch.ones(6), dim=0)  # like class 4


def points(counts: list[int], seed: int) -> tuple[Tensor, Tensor]:
    """(n, 6) points around the centre of their class, in random order."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(6), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=source)]
    return CENTRES[labels] + 0.35 * torch.randn(len(labels), 6, generator=source), labels


def owner(labels: Tensor, unseen: tuple[int, ...]) -> LabelOwner:
    return LabelOwner(labels, 6, (0, 1), key=3, unseen=unseen)


def halves(rows: int) -> Tensor:
    return torch.arange(rows) % 2


def test_a_class_hidden_beside_another_is_found() -> None:
    aligned, labels = points([20, 20, 20, 20, 20, 0], 1)
    query, truth = points([60, 60, 60, 60, 60, 60], 2)
    found = guesses.best_guess(owner(labels, (5,)), aligned, query, halves(360))
    said = found.p.argmax(1)
    assert (said == truth[found.rows]).float().mean() > 0.9
    assert found.sureness > 0.7


def test_two_classes_are_found_at_once() -> None:
    aligned, labels = points([20, 0, 20, 20, 20, 0], 3)
    query, truth = points([60, 60, 60, 60, 60, 60], 4)
    found = guesses.best_guess(owner(labels, (1, 5)), aligned, query, halves(360))
    said, truth = found.p.argmax(1), truth[found.rows]
    swapped = torch.tensor([0, 5, 2, 3, 4, 1])[said]
    right = max((said == truth).float().mean(), (swapped == truth).float().mean())
    assert right > 0.9


def test_rates_are_those_of_the_labels_and_an_equal_share_of_classes_that_lack_them() -> None:
    labels = torch.tensor([0] * 30 + [1] * 10 + [2] * 2)
    me = LabelOwner(labels, 4, (0,), key=3, unseen=(3,), rare=(2,))
    expected = torch.tensor([0.375, 0.125, 0.25, 0.25])
    torch.testing.assert_close(guesses.class_rates(me), expected)


def test_evened_probabilities_come_nearer_to_the_rates() -> None:
    p = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)) + torch.tensor([2.0, 0, 0])
    p = p / p.sum(1, keepdim=True)
    rates = torch.full((3,), 1 / 3)
    after = guesses.evened(p, rates)
    torch.testing.assert_close(after.sum(1), torch.ones(200))
    assert (after.mean(0) - rates).abs().sum() < 0.2 * (p.mean(0) - rates).abs().sum()


def test_as_many_rows_of_a_class_as_are_too_many_are_suspected() -> None:
    aligned, labels = points([20, 20, 20, 20, 20, 0], 1)
    query, _ = points([60] * 6, 2)
    bench = guesses.Bench(owner(labels, (5,)), aligned, query, halves(360))
    taken = torch.arange(360) % 4  # classes 4 and 5 never, the others 90 times instead of 60
    rank = torch.arange(360.0)
    suspected = guesses.too_many(bench, torch.eye(6)[taken], rank)
    expected = (taken.bincount(minlength=6) - bench.rates * 360).clamp(min=0).ceil()
    torch.testing.assert_close(suspected @ torch.eye(6)[taken], expected)
    # the highest ranks of each class
    assert suspected[rank > 240].mean() > suspected[rank < 120].mean()


def test_columns_of_two_guesses_are_brought_into_one_order() -> None:
    like = torch.eye(4)[torch.arange(40) % 4]
    other = like[:, [0, 1, 3, 2]]
    ordered = guesses.same_order(torch.stack([other, like]), like, (2, 3))
    torch.testing.assert_close(ordered, torch.stack([like, like]))


def test_guesses_that_overlap_by_half_count_once() -> None:
    a, b = torch.zeros(10), torch.zeros(10)
    a[:4] = 1
    b[6:] = 1
    c = a.clone()
    c[4] = 1
    assert guesses.different(torch.stack([a, c, b])) == [0, 2]


@pytest.mark.parametrize("seed", [21, 31])
def test_there_is_more_evidence_of_a_class_that_is_there_than_of_one_that_is_not(seed: int) -> None:
    aligned, labels = points([20, 20, 20, 20, 20, 0], seed)
    me, found = owner(labels, (5,)), []
    for hidden in (60, 0):
        query, _ = points([60, 60, 60, 60, 60, hidden], seed + 1)
        guess = guesses.best_guess(me, aligned, query, halves(len(query)))
        found.append(float(guesses.evidence(me, guess)))
    assert found[0] > UnseenSettings().open_bar > found[1]


def test_a_class_nobody_labelled_or_named_is_not_expected() -> None:
    me = LabelOwner(torch.tensor([0] * 30 + [1] * 10), 4, (0,), key=3, unseen=(3,))
    torch.testing.assert_close(guesses.class_rates(me), torch.tensor([0.5, 1 / 6, 0.0, 1 / 3]))
