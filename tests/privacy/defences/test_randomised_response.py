"""Randomised response: kept as often as promised, otherwise any other class equally often."""

import math

import torch

from protoevfl.privacy.defences.noise import SecretNoise
from protoevfl.privacy.defences.randomised_response import keep_probability, randomise


def test_rates() -> None:
    labels = torch.full((60_000,), 2)
    seen = randomise(labels, 5, 1.0, SecretNoise(b"r" * 32))
    rates = seen.bincount(minlength=5) / len(seen)
    keep = keep_probability(1.0, 5)
    assert abs(float(rates[2]) - keep) < 0.01
    others = [float(rates[z]) for z in (0, 1, 3, 4)]
    assert max(others) - min(others) < 0.01
    assert math.isclose(keep / ((1 - keep) / 4), math.e)  # the promise: e^epsilon


def test_two_classes_and_a_huge_epsilon() -> None:
    labels = torch.arange(100) % 2
    assert torch.equal(randomise(labels, 2, 50.0, SecretNoise()), labels)
    assert set(randomise(labels, 2, 0.1, SecretNoise()).tolist()) == {0, 1}
