"""The yardstick uses the attacker's own rows only, and more labels help it."""

from dataclasses import replace

import torch

from protoevfl.privacy.attacks.no_communication import majority, no_communication
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.scores import score
from protoevfl.privacy.view import know

from ..world import CLASSES, view


def rates(k: int, seed: int = 0) -> dict[str, float]:
    seen, labels = view(seed, PrivacySettings())
    known = know(labels, k, CLASSES, seed)
    return {
        n: score(g, labels, known, CLASSES).accuracy
        for n, g in no_communication(seen, known).items()
    }


def test_more_labels_help_and_none_leave_groups_only() -> None:
    assert list(rates(0)) == ["k-means"]
    assert max(rates(10).values()) > max(rates(1).values())


def test_messages_make_no_difference() -> None:
    seen, labels = view(0, PrivacySettings())
    known = know(labels, 2, CLASSES, 0)
    silent = replace(seen, exchanges=())
    pairs = zip(
        no_communication(seen, known).values(),
        no_communication(silent, known).values(),
        strict=True,
    )
    assert all(torch.equal(a.labels, b.labels) for a, b in pairs)


def test_majority() -> None:
    assert majority(torch.tensor([1, 2, 2])).labels.tolist() == [2, 2, 2]
