"""Small synthetic runs for the privacy tests: Gaussian classes, one prototype message a round."""

from dataclasses import replace

import torch
from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.core.prototypes import class_means, update
from protoevfl.messages import Embeddings, Learn, Learned, Message, WarmUp
from protoevfl.privacy.defences.noise import SeededNoise
from protoevfl.privacy.policy import OwnerGuard, PrivacySettings
from protoevfl.privacy.protocol import Case, shuffled
from protoevfl.privacy.scores import score
from protoevfl.privacy.view import Guess, Known, View, views

CLASSES, ROWS, WIDTH = 5, 100, 24
NONE = Known(torch.full((ROWS,), -1))  # no label is known
BARE = PrivacySettings()


def embeddings(
    seed: int, rows: int = ROWS, width: int = WIDTH, spread: float = 0.35
) -> tuple[Tensor, Tensor]:
    """(f (N, d), labels (N,)): Gaussian classes, the same size each."""
    keys = torch.tensor([rnd.key(seed, "synthetic")])
    labels = torch.arange(rows) % CLASSES
    centres = rnd.normal(keys, "centres", 0, (CLASSES, width))[0]
    return spread * centres[labels] + rnd.normal(keys, "rows", 0, (rows, width))[0], labels


def transcript(
    f: Tensor,
    labels: Tensor,
    settings: PrivacySettings,
    rounds: int,
    rule: str = "none",
    rho: float = 0.5,
    seed: int = 0,
) -> list[tuple[int, Message, Message]]:
    """A party that moves its embeddings a little in each round, and an owner that sends their class
    means."""
    guard = OwnerGuard(settings, labels, CLASSES, SeededNoise(seed))
    keys, prior = torch.tensor([rnd.key(seed, "moves")]), torch.full((CLASSES,), 1 / CLASSES)
    said: list[tuple[int, Message, Message]] = [(1, WarmUp(), Embeddings(f))]
    guard.received(1, said[0][2])
    mu, counts = class_means(f, labels, CLASSES)
    for t in range(rounds):
        request = guard.down(1, Learn(t, mu, (counts > 0).float(), prior))
        f = f + 0.3 * rnd.normal(keys, "move", t, tuple(f.shape))[0]
        said.append((1, request, Learned(f, prior)))
        guard.received(1, said[-1][2])
        means, counts = class_means(f, labels, CLASSES)
        mu = means if rule == "none" else update(mu, means, counts, rho, rule)  # type: ignore[arg-type]
    return said


def view(
    seed: int,
    settings: PrivacySettings,
    rounds: int = 1,
    canary: bool = False,
    rule: str = "none",
    rho: float = 0.5,
) -> tuple[View, Tensor]:
    """What party 1 saw, and the labels."""
    f, labels = embeddings(seed)
    labels = shuffled(labels, seed) if canary else labels
    said = transcript(f, labels, settings, rounds, rule, rho, seed)
    seen = views(said, len(labels), CLASSES)[1]
    rank = settings.rank if settings.guards_labels else None
    return replace(seen, own={1: f}, update=rule, rho=rho, rank=rank), labels


def cases(
    settings: PrivacySettings, seeds: int, rounds: int = 1, canary: bool = False
) -> list[Case]:
    return [Case(s, *view(s, settings, rounds, canary)) for s in range(seeds)]


def best(guesses: dict[str, Guess], labels: Tensor, known: Known = NONE) -> float:
    """The accuracy of the best of the guesses."""
    return max(score(g, labels, known, CLASSES).accuracy for g in guesses.values())
