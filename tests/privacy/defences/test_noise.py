"""Noise: the right distribution, unpredictable without the key, repeatable with it."""

import pytest
import torch
from scipy import stats

from protoevfl.privacy.defences.noise import Noise, SecretNoise, SeededNoise, digest


@pytest.mark.parametrize("source", [SecretNoise(b"test" * 8), SeededNoise(1)])
def test_standard_normal(source: Noise) -> None:
    x = source("numbers", (200, 501)).flatten()
    assert abs(float(x.mean())) < 0.015
    assert abs(float(x.var()) - 1) < 0.02
    assert stats.kstest(x.numpy(), "norm").pvalue > 1e-3
    assert abs(float((x[1:] * x[:-1]).mean())) < 0.015


def test_every_secret_is_new_and_never_printed() -> None:
    one, two = SecretNoise(), SecretNoise()
    assert len(one.key) == 32
    assert one.key != two.key
    assert not torch.equal(one("a", (5,)), two("a", (5,)))
    assert one.key.hex() not in repr(one)
    assert str(one.key) not in repr(one)


@pytest.mark.parametrize("source", [SecretNoise(b"k" * 32), SeededNoise(0)])
def test_uniform_lies_strictly_inside(source: Noise) -> None:
    u = source.uniform("u", 100_000)
    assert 0 < float(u.min()) < float(u.max()) < 1


def test_digest_depends_on_every_bit_and_the_shape() -> None:
    x = torch.zeros(2, 3)
    y = x.clone()
    y[1, 2] = -0.0
    assert len({digest(x), digest(y), digest(x.view(3, 2)), digest(x.double())}) == 4
