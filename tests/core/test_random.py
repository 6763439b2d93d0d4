"""Numbers depend on key, purpose and counter alone; they are uniform, normal and uncorrelated."""

import hashlib

import numpy as np
import pytest
import torch

from protoevfl.core import random as rnd

KEYS = torch.tensor([rnd.key(0, "party", m) for m in range(6)])


def test_a_member_draws_the_same_alone_and_stacked() -> None:
    together = rnd.normal(KEYS, "x", 5, (3, 7))
    for g in range(len(KEYS)):
        assert torch.equal(together[g : g + 1], rnd.normal(KEYS[g : g + 1], "x", 5, (3, 7)))


@pytest.mark.parametrize("counter", [0, 1, 9, 123_456, 2**31 - 1])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 8, 33)])
def test_counter_as_tensor_equals_counter_as_int(counter: int, shape: tuple[int, ...]) -> None:
    """On the CPU an int takes the host's arithmetic, a tensor the tensors'."""
    keys = torch.cat([KEYS, torch.tensor([0, 1, -5, 2**62 + 12_345, 2**63 - 1])])
    for draw in (rnd._bits, rnd.uniform, rnd.normal):
        assert torch.equal(
            draw(keys, "x", counter, shape), draw(keys, "x", torch.tensor(counter), shape)
        )


def test_bits_are_the_documented_hash() -> None:
    """A slow reference with unsigned Python integers."""

    def mix(x: int) -> int:
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846BA68B)):
            x = (x ^ x >> shift) * factor % 2**32
        return x ^ x >> 16

    key, purpose, counter = int(KEYS[0]), "x", 41
    word = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:4], "little")
    first = mix((mix(key % 2**32 ^ word) + counter) % 2**32)
    second = mix(mix(((key >> 32) + counter) % 2**32) ^ first)
    expected = [mix((mix(mix(n) ^ first) + second) % 2**32) for n in range(50)]
    assert (rnd._bits(KEYS[:1], purpose, counter, (50,))[0].long() % 2**32).tolist() == expected


def test_drawing_again_gives_the_same_although_buffers_are_changed_in_place() -> None:
    kept = KEYS.clone()
    first = rnd.normal(KEYS, "x", 3, (11,)).clone()
    assert torch.equal(first, rnd.normal(KEYS, "x", 3, (11,)))
    assert torch.equal(KEYS, kept)


def test_key_purpose_and_counter_all_matter() -> None:
    base = rnd.uniform(KEYS[:1], "a", 0, (100,))
    others = [
        rnd.uniform(KEYS[1:2], "a", 0, (100,)),
        rnd.uniform(KEYS[:1], "b", 0, (100,)),
        rnd.uniform(KEYS[:1], "a", 1, (100,)),
    ]
    for other in others:
        assert torch.corrcoef(torch.cat([base, other]))[0, 1].abs() < 0.35


def test_uniform_is_uniform_over_positions_and_over_counters() -> None:
    by_position = rnd.uniform(KEYS[:1], "u", 0, (100_000,))[0]
    by_counter = torch.cat([rnd.uniform(KEYS[:1], "u", c, (1,)) for c in range(5_000)]).flatten()
    for u, tolerance in ((by_position, 0.005), (by_counter, 0.02)):
        assert u.min() >= 0
        assert u.max() < 1
        assert abs(u.mean() - 0.5) < tolerance
        assert abs(u.var() - 1 / 12) < tolerance
        lagged = torch.corrcoef(torch.stack([u[:-1], u[1:]]))[0, 1]
        assert lagged.abs() < 0.05


def test_normal_has_unit_variance_and_light_tails() -> None:
    x = rnd.normal(KEYS, "n", 1, (20_001,))
    assert abs(x.mean()) < 0.01
    assert abs(x.var() - 1) < 0.02
    assert abs((x**4).mean() - 3) < 0.15
    assert x.isfinite().all()


def test_permutation_holds_each_row_once_and_differs_between_members() -> None:
    p = rnd.permutation(KEYS, "p", 2, 1000)
    assert torch.equal(p.sort(1).values, torch.arange(1000).expand(len(KEYS), -1))
    assert not torch.equal(p[0], p[1])


def test_beta_is_symmetric_with_the_right_variance() -> None:
    x = rnd.beta_symmetric(KEYS, "b", 0, (20_000,), 0.4)
    assert abs(x.mean() - 0.5) < 0.01
    assert abs(x.var() - 1 / (4 * (2 * 0.4 + 1))) < 0.005


def test_derive_is_stable_and_distinct() -> None:
    child = rnd.derive(KEYS, "warm-up")
    assert torch.equal(child, rnd.derive(KEYS, "warm-up"))
    assert not torch.equal(child, rnd.derive(KEYS, "head"))
    assert len(set(child.tolist())) == len(KEYS)


def flip_bias(factor: int) -> np.ndarray:
    """(32, 32) rates at which input bit i flips output bit j, relative to 1/2, over 2^18 inputs;
    the mixer is spelt out so that the published factor can stand beside ours."""

    def mixed(x: np.ndarray) -> np.ndarray:
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(factor)
        return x ^ (x >> np.uint32(16))

    x = np.arange(1 << 18, dtype=np.uint32) * np.uint32(2654435769)
    rates = []
    for i in range(32):
        flipped = mixed(x) ^ mixed(x ^ np.uint32(1 << i))
        rates.append([((flipped >> np.uint32(j)) & np.uint32(1)).mean() for j in range(32)])
    return 2 * np.array(rates) - 1


def test_the_mixer_is_as_unbiased_as_the_published_one() -> None:
    """One digit of the factor differs (see `_mix`). What 2^18 inputs show by chance alone is 2 per
    mille."""
    ours, published = (
        np.sqrt((flip_bias(f) ** 2).mean()) for f in (rnd._NUMBERS[-1] & 0xFFFFFFFF, 0x846CA68B)
    )
    assert ours == pytest.approx(published, rel=0.1)
    assert ours < 0.0025
