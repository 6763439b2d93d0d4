"""Counts of a split: they add up, no class gives more than it has, and what a message says would
fit does fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protoevfl.errors import UserError
from protoevfl.rows.split_counts import (
    GAMMAS,
    POOL_ROWS,
    SplitSpec,
    _exact_pool,
    _wanted_shares,
    aligned_counts,
    check,
    kept_counts,
    pool_counts,
    pool_rows,
)

classes = st.lists(st.integers(2, 300), min_size=2, max_size=8).map(np.array)


@given(classes, st.data())
def test_aligned_rows_add_up_and_take_at_most_half_of_a_class(
    frequency: Any, data: st.DataObject
) -> None:
    aligned = data.draw(st.integers(len(frequency), int((frequency // 2).sum())))
    counts = aligned_counts(SplitSpec(aligned=aligned), frequency)
    assert counts.sum() == aligned
    assert (counts <= frequency // 2).all()
    assert (counts >= 1).all()


@given(st.lists(st.integers(100, 300), min_size=3, max_size=6).map(np.array), st.integers(6, 100))
def test_many_classes_are_aligned_evenly(frequency: Any, aligned: int) -> None:
    counts = aligned_counts(SplitSpec(aligned=aligned), frequency)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("aligned", [1, 26])
def test_too_few_or_too_many_aligned_rows_say_how_many_fit(aligned: int) -> None:
    frequency = np.array([20, 30])
    with pytest.raises(
        UserError, match=r"bank has 50 train rows in 2 classes: 2 to 25 aligned rows fit"
    ):
        aligned_counts(SplitSpec("bank", aligned=aligned), frequency)
    for fits in (2, 25):
        assert aligned_counts(SplitSpec("bank", aligned=fits), frequency).sum() == fits


def test_settings_take_rows_of_the_named_classes_only() -> None:
    aligned = np.array([10, 20, 30])
    before = aligned.copy()
    assert kept_counts(SplitSpec(), aligned).tolist() == [10, 20, 30]
    assert kept_counts(SplitSpec(setting="zero_shot", classes=(0, 2)), aligned).tolist() == [
        0,
        20,
        0,
    ]
    assert kept_counts(SplitSpec(setting="few_shot", classes=(1,), shots=5), aligned).tolist() == [
        10,
        5,
        30,
    ]
    assert np.array_equal(aligned, before)
    with pytest.raises(
        UserError, match=r"class 0 has only 10 aligned rows; ask for fewer rows or more than 200"
    ):
        kept_counts(SplitSpec(setting="few_shot", classes=(0,), shots=11), aligned)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"setting": "few"}, "unknown setting 'few'; there are normal, few_shot, zero_shot"),
        ({"parties": 0}, "at least one party, not 0"),
        ({"classes": (1,)}, "choose few_shot or zero_shot"),
        ({"setting": "few_shot"}, "needs the classes it is about, for example 3"),
        (
            {"setting": "zero_shot", "classes": (3,)},
            r"class 3 does not exist; rows has classes 0\.\.2",
        ),
        ({"setting": "zero_shot", "classes": (0, 0)}, "name each class once"),
        ({"setting": "zero_shot", "classes": (0, 1, 2)}, "leave at least one of 3 classes"),
        ({"setting": "few_shot", "classes": (1,), "shots": 0}, "for none choose zero_shot"),
    ],
)
def test_a_request_that_makes_no_sense_says_what_would(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check(replace(SplitSpec(), **change), np.array([5, 5, 5]))


def test_a_class_without_rows_is_named() -> None:
    check(SplitSpec(), np.array([5, 1]))
    with pytest.raises(UserError, match="class 1 has no train row"):
        check(SplitSpec(), np.array([5, 0, 5]))


def test_a_default_pool_shrinks_with_a_note_and_a_requested_one_does_not() -> None:
    left = np.array([50, 50])
    assert pool_rows(SplitSpec("digits"), np.array([900, 900])) == (POOL_ROWS["digits"], [])
    rows, notes = pool_rows(SplitSpec("digits"), left)
    assert rows == 25
    assert notes == ["note: 4 pools of 250 rows do not fit; 25 rows each"]
    assert pool_rows(SplitSpec("own rows"), left) == (25, [])
    with pytest.raises(UserError, match="4 pools of 2 to 25 rows fit, not 26"):
        pool_rows(SplitSpec(pool=26), left)
    assert pool_rows(SplitSpec(pool=25), left) == (25, [])
    with pytest.raises(UserError, match="class 1 has 3 left, but each of 4 pools needs one"):
        pool_rows(SplitSpec(), np.array([50, 3]))


@given(
    classes,
    st.integers(1, 6),
    st.sampled_from(["majority", "exponential", "balanced"]),
    st.integers(0, 3),
)
def test_shares_of_a_profile_are_shares_with_the_gamma_asked_for(
    left: Any, parties: int, profile: str, seed: int
) -> None:
    spec = SplitSpec(parties=parties, profile=profile, gammas=(8.0, 2.0))
    shares = _wanted_shares(spec, 20, left, seed)
    assert shares.shape == (parties, len(left))
    assert np.allclose(shares.sum(axis=1), 1)
    gamma = shares.max(axis=1) / shares.min(axis=1)
    assert np.allclose(gamma, 1 if profile == "balanced" else np.resize([8.0, 2.0], parties))
    assert np.array_equal(shares, _wanted_shares(spec, 20, left, seed))


def test_gammas_below_one_are_refused_and_every_data_set_has_its_own() -> None:
    with pytest.raises(UserError, match=r"at least 1, not 0\.5"):
        _wanted_shares(SplitSpec(gammas=(2.0, 0.5)), 20, np.array([50, 50]), 0)
    assert set(GAMMAS) == set(POOL_ROWS)
    assert min(min(some) for some in GAMMAS.values()) >= 1


@settings(max_examples=60)
@given(
    classes, st.integers(1, 5), st.integers(8, 300), st.sampled_from(["majority", "exponential", "balanced"]),
    st.floats(1, 30),
)  # fmt: skip
def test_pools_add_up_and_a_note_tells_a_size_that_needs_none(
    left: Any, parties: int, pool: int, profile: str, gamma: float
) -> None:
    spec = SplitSpec(parties=parties, pool=pool, profile=profile, gammas=(gamma,))
    assume((left >= parties).all() and len(left) <= pool <= left.sum() // parties)
    counts, notes = pool_counts(spec, pool, left, 0)
    assert (counts.sum(axis=1) == pool).all()
    assert (counts.sum(axis=0) <= left).all()
    assert (counts >= 1).all()
    fits = _exact_pool(spec, pool, left, 0)
    assert (fits == pool) == (not notes)
    if notes and f"met exactly with {fits:,} rows per party" in notes[0]:
        assert pool_rows(replace(spec, pool=fits), left) == (fits, [])
        assert pool_counts(spec, fits, left, 0)[1] == []
    elif notes:
        assert "no smaller number was found" in notes[0]
        assert fits < len(left)


def test_an_exact_request_that_no_size_meets_says_so() -> None:
    spec = SplitSpec(parties=1, pool=27, profile="exponential", gammas=(21.0,), exact=True)
    left = np.array([20, 1, 20])
    with pytest.raises(
        UserError,
        match=r"rows: 1 x 27 pool rows do not meet the profile.*no smaller number was found",
    ):
        pool_counts(spec, 27, left, 1)
    with pytest.raises(UserError, match="; 1 x 24 do"):
        pool_counts(replace(spec, profile="balanced", pool=30), 30, np.array([20, 8, 20]), 1)
