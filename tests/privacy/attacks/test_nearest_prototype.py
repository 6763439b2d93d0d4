"""Each row goes to the prototype it is nearest to."""

from protoevfl.privacy.attacks.nearest_prototype import nearest_prototype

from ..world import BARE, CLASSES, NONE, best, view


def test_classes_that_lie_apart_are_named_and_shuffled_labels_are_not() -> None:
    seen, labels = view(0, BARE)
    assert best(nearest_prototype(seen, NONE), labels) > 0.8
    seen, labels = view(0, BARE, canary=True)
    assert best(nearest_prototype(seen, NONE), labels) < 0.7


def test_without_a_message_there_is_nothing_to_be_near_to() -> None:
    seen, labels = view(0, BARE, rounds=0)
    guesses = nearest_prototype(seen, NONE)
    assert not guesses or best(guesses, labels) < 2 / CLASSES
