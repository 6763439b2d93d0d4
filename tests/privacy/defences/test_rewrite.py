"""Rewriting: shapes kept, nothing withheld left behind, permutations undone."""

import torch

from protoevfl.messages import Learn, Learned
from protoevfl.privacy.defences.rewrite import permuted, rounded, unpermuted, without_small_classes


def message() -> Learn:
    return Learn(0, torch.arange(6.0).view(3, 2) / 7, torch.ones(3), torch.tensor([0.2, 0.3, 0.5]))


def test_rounding() -> None:
    assert rounded(message(), 1).prototypes[0].tolist() == torch.tensor([0.0, 0.1]).tolist()


def test_a_small_class_leaves_no_trace() -> None:
    sent = without_small_classes(message(), torch.tensor([9, 2, 9]), minimum=3)
    assert sent.present.tolist() == [1, 0, 1]
    assert (sent.prototypes[1] == 0).all()


def test_permutation_and_back() -> None:
    order = torch.tensor([2, 0, 1])
    sent = permuted(message(), order)
    assert torch.equal(sent.prototypes[0], message().prototypes[2])
    assert torch.equal(
        unpermuted(Learned(torch.zeros(1, 2), sent.prior), order).prior, message().prior
    )
