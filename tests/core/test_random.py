"""Numbers depend on key, purpose and counter alone; they are uniform, normal and uncorrelated."""

import torch

from protoevfl.core import random as rnd

KEYS = torch.tensor([rnd.key(0, "party", m) for m in range(6)])


def test_a_member_draws_the_same_alone_and_stacked() -> None:
    together = rnd.normal(KEYS, "x", 5, (3, 7))
    for g in range(len(KEYS)):
        assert torch.equal(together[g : g + 1], rnd.normal(KEYS[g : g + 1], "x", 5, (3, 7)))


def test_counter_as_tensor_equals_counter_as_int() -> None:
    assert torch.equal(rnd.uniform(KEYS, "x", 9, (4,)), rnd.uniform(KEYS, "x", torch.tensor(9), (4,)))


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
