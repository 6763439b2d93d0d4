"""Completion of a model from a few known labels."""

from protoevfl.privacy.attacks.model_completion import model_completion
from protoevfl.privacy.view import know

from ..world import BARE, CLASSES, NONE, best, view


def test_completion_needs_labels_or_prototypes() -> None:
    seen, labels = view(0, BARE, rounds=0)
    assert model_completion(seen, NONE) == {}
    known = know(labels, 8, CLASSES, 0)
    assert best(model_completion(seen, known), labels, known) > 2 / CLASSES
