"""Class sums of the sealed level as equations: they tell the randomised labels and nothing beyond."""

import torch

from protoevfl.messages import Embeddings, OpenLabels
from protoevfl.privacy.attacks.class_sums import class_sums, made_up_features, sealed_labels
from protoevfl.privacy.view import Exchange, Known, View

ROWS, CLASSES = 100, 2
SECRET = bytes(range(32)).hex()
NOBODY = Known(torch.full((ROWS,), -1))


def view(width: int, seed: int = 0, sigma: float = 0.0) -> tuple[View, torch.Tensor]:
    """A party with `width` features and random labels that have nothing to do with them."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (ROWS,), generator=source)
    request = OpenLabels(torch.arange(ROWS), labels, torch.ones(CLASSES), sigma, SECRET)
    exchange = Exchange(1, request, Embeddings(torch.zeros(ROWS, 1)))
    features = torch.randn(ROWS, width, generator=source)
    return View((exchange,), ROWS, CLASSES, wide={1: features}), labels


def best(seen: View, labels: torch.Tensor) -> float:
    guesses = class_sums(seen, NOBODY).values()
    return max(float((guess.labels == labels).float().mean()) for guess in guesses)


def test_many_features_per_row_solve_the_system_and_few_do_not() -> None:
    """Five folds of 20 rows: 30 features determine them, 2 say little."""
    assert best(*view(30)) == 1
    assert best(*view(2)) < 0.75


def test_with_noise_hardly_a_label_is_found() -> None:
    """A hundred features for a hundred rows: without noise every label; at sigma 2 the bound for equally likely
    classes, who knows all other labels, is 64 %."""
    exact, labels = view(100)
    noisy, _ = view(100, sigma=2.0)
    assert best(exact, labels) == 1
    assert best(noisy, labels) < 0.72


def test_spikes_read_exactly_what_was_summed() -> None:
    seen, labels = view(3)
    (guess,) = made_up_features(seen, NOBODY).values()
    assert torch.equal(guess.labels, labels)


def test_without_sums_there_is_no_attack() -> None:
    silent = View((), ROWS, CLASSES, wide={1: torch.zeros(ROWS, 2)})
    assert sealed_labels(silent) is None
    assert class_sums(silent, NOBODY) == made_up_features(silent, NOBODY) == {}
