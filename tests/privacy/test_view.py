"""Views: a party sees its own messages and no others; the active party is no attacker."""

import torch

from protoevfl.messages import Embeddings, ForwardBatch, WarmUp
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.view import know, together, views

from .world import CLASSES, ROWS, embeddings, transcript


def test_each_party_sees_its_own_messages() -> None:
    f, labels = embeddings(0)
    said = transcript(f, labels, PrivacySettings(), 2)
    both = views(
        [*said, *((p + 1, q, r) for p, q, r in said), (0, WarmUp(), Embeddings(f))], ROWS, CLASSES
    )
    assert sorted(both) == [1, 2]
    assert all(e.party == 2 for e in both[2].exchanges)
    assert together(both.values()).parties == (1, 2)
    assert len(together(both.values()).releases()) == 4


def test_a_release_comes_with_the_embeddings_it_was_made_of() -> None:
    f, labels = embeddings(0)
    view = views(transcript(f, labels, PrivacySettings(), 2), ROWS, CLASSES)[1]
    first, second = view.releases()
    assert torch.equal(first.f, f.double())
    assert torch.equal(second.f, view.uploads(1)[1].double())


def test_batches_are_put_together() -> None:
    rows = torch.tensor([2, 0, 1])
    said = [(1, ForwardBatch(0, rows), Embeddings(rows[:, None].float()))]
    last = views(said, 3, 2)[1].last_embeddings(1)
    assert last is not None
    assert last.flatten().tolist() == [0, 1, 2]


def test_known_labels_are_k_a_class_at_most_half_of_it_and_right() -> None:
    labels = torch.tensor([0] * 5 + [1] * 5 + [2] * 2)
    side = know(labels, 2, 3, seed=1)
    assert side.labels[side.mask].bincount().tolist() == [2, 2, 1]
    assert torch.equal(side.labels[side.mask], labels[side.mask])
