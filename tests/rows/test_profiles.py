"""Requested class shares, and the whole rows nearest to them."""

import doctest

import numpy as np
import pytest

from protoevfl.errors import UserError
from protoevfl.rows import dataset, fetch, profiles, raster
from protoevfl.rows.profiles import _majority_classes, nearest_counts, shares

EQUAL = np.full(10, 6000)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("module", [dataset, fetch, profiles, raster])
def test_examples_in_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_shares_sum_to_one_at_the_given_gamma(profile: str) -> None:
    gammas = [12.0, 11.0, 10.0, 5.0]
    wanted = shares(profile, gammas, 4, 1000, EQUAL, rng())
    assert np.allclose(wanted.sum(axis=1), 1)
    ratio = wanted.max(axis=1) / wanted.min(axis=1)
    assert np.allclose(ratio, 1.0 if profile == "balanced" else gammas)


def test_half_of_the_majority_classes_are_common() -> None:
    members = _majority_classes([12.0] * 4, 4, 1000, EQUAL, rng())
    assert len(set.intersection(*map(set, members))) == 2
    assert set().union(*members) == set(range(10))
    assert all(len(set(part)) == 4 for part in members)


def test_majority_classes_depend_on_the_seed() -> None:
    assert len({str(_majority_classes([12.0] * 4, 4, 1000, EQUAL, rng(s))) for s in range(5)}) == 5


def test_a_class_with_few_rows_is_no_majority() -> None:
    caps = np.array([100, *[6000] * 9])
    for seed in range(20):
        assert all(
            0 not in part for part in _majority_classes([12.0] * 4, 4, 1000, caps, rng(seed))
        )


def test_no_common_class_when_none_has_the_rows() -> None:
    members = _majority_classes([12.0] * 8, 4, 7000, EQUAL, rng())
    assert not set.intersection(*map(set, members))
    used = np.bincount(np.concatenate(members), minlength=10)
    assert used.max() - used.min() <= 1


@pytest.mark.parametrize(
    ("gammas", "expected"),
    [
        ([9.5, 1.1], [0, 1]),
        ([9.5, 1.1, 8.5, 2.3], [0, 1, 0, 0]),
        ([9.5, 1.1, 8.5, 2.3, 9.5, 1.1], [0, 1, 0, 0, 0, 0]),
        ([9.5, 1.1, 8.5, 2.3] * 2, [0, 1, 0, 0] * 2),
    ],
)
def test_two_classes_have_opposite_majorities(gammas: list[float], expected: list[int]) -> None:
    members = _majority_classes(gammas, 1, 100, np.array([900, 300]), rng())
    assert [part[0] for part in members] == expected


def test_request_that_fits_is_met_to_the_row() -> None:
    wanted = shares("majority", [12.0, 11.5, 11.0, 10.0], 4, 1000, EQUAL, rng())
    counts = nearest_counts(wanted, 1000, EQUAL)
    assert np.abs(counts - 1000 * wanted).max() <= 1
    assert (counts.sum(axis=1) == 1000).all()


@pytest.mark.parametrize("seed", range(30))
def test_counts_always_keep_sums_caps_and_every_class(seed: int) -> None:
    draw = rng(seed)
    parties, classes = int(draw.integers(1, 9)), int(draw.integers(2, 12))
    caps = draw.integers(parties, 500, classes)
    most = int(caps.sum()) // parties
    if most < classes:
        pytest.skip("no pool can hold every class")
    pool = int(draw.integers(classes, most + 1)) if seed % 3 else most
    counts = nearest_counts(
        draw.dirichlet(np.full(classes, 0.3), parties) * 0.999 + 0.001 / classes, pool, caps
    )
    assert (counts.sum(axis=1) == pool).all()
    assert (counts.sum(axis=0) <= caps).all()
    assert counts.min() >= 1


def test_scarce_class_loses_majorities_first() -> None:
    wanted = np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2]])
    counts = nearest_counts(wanted, 100, np.array([60, 500, 500]))
    assert counts[:, 0].sum() == 60
    assert counts[1, 0] >= 19
    assert (counts[0] >= 19).all()


def test_unknown_profile_and_number_of_classes() -> None:
    with pytest.raises(UserError, match="majority, exponential, balanced"):
        shares("zipf", [2.0], 1, 10, EQUAL, rng())
    with pytest.raises(UserError, match="1 to 9 majority classes of 10"):
        shares("majority", [2.0], 10, 10, EQUAL, rng())
