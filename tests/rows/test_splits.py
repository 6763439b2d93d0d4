"""Splits: disjoint parts, the requested counts, the same rows for the same seed, test rows
untouched."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.rows import sources
from protoevfl.rows.split_counts import POOL_ROWS
from protoevfl.rows.splits import Split, SplitSpec, make_split, split_dataset

from .real import requires

LABELS = torch.from_numpy(np.random.default_rng(5).permutation(np.repeat(np.arange(10), 300)))
SPEC = SplitSpec(parties=4, aligned=100, pool=200)


def bincount(rows: torch.Tensor, classes: int = 10) -> list[int]:
    return LABELS[rows].bincount(minlength=classes).tolist()


@pytest.mark.parametrize("profile", ["majority", "exponential", "balanced"])
@pytest.mark.parametrize("setting", ["normal", "few_shot", "zero_shot"])
def test_parts_are_disjoint_and_have_the_stated_counts(profile: str, setting: str) -> None:
    classes = () if setting == "normal" else (3, 7)
    split = make_split(LABELS, replace(SPEC, profile=profile, setting=setting, classes=classes), 0)
    rows = torch.cat([split.aligned, *split.pools])
    assert len(rows.unique()) == len(rows)
    assert bincount(split.aligned) == list(split.aligned_counts)
    for pool, counts in zip(split.pools, split.counts, strict=True):
        assert len(pool) == 200
        assert bincount(pool) == list(counts)
        assert min(counts) >= 1


def test_settings_take_aligned_rows_away_and_leave_pools_alone() -> None:
    normal = make_split(LABELS, SPEC, 0)
    few = make_split(LABELS, replace(SPEC, setting="few_shot", classes=(3,)), 0)
    zero = make_split(LABELS, replace(SPEC, setting="zero_shot", classes=(3,)), 0)
    assert [len(s.aligned) for s in (normal, few, zero)] == [100, 95, 90]
    assert few.aligned_counts[3] == 5
    assert zero.aligned_counts[3] == 0
    assert set(zero.aligned.tolist()) < set(few.aligned.tolist()) < set(normal.aligned.tolist())
    for other in (few, zero):
        for pool, same in zip(other.pools, normal.pools, strict=True):
            assert torch.equal(pool, same)
    assert (normal.unseen, zero.unseen, few.rare) == ((), (3,), (3,))


def test_same_seed_same_rows_other_seed_other_rows() -> None:
    first, again, other = (
        make_split(LABELS, SPEC, 0),
        make_split(LABELS, SPEC, 0),
        make_split(LABELS, SPEC, 1),
    )
    assert first.hash == again.hash != other.hash
    assert torch.equal(first.aligned, again.aligned)


def test_hash_sees_order_and_boundaries() -> None:
    split = make_split(LABELS, SPEC, 0)
    assert replace(split, aligned=split.aligned.flip(0)).hash != split.hash
    moved = replace(split, aligned=split.aligned[:-1], test=split.aligned[-1:])
    assert moved.hash != split.hash


def test_fewer_aligned_rows_are_among_the_more() -> None:
    small, large = (make_split(LABELS, replace(SPEC, aligned=n), 3) for n in (60, 200))
    assert set(small.aligned.tolist()) < set(large.aligned.tolist())


def test_aligned_rows_are_shuffled() -> None:
    labels = LABELS[make_split(LABELS, SPEC, 0).aligned]
    assert len(labels[:30].unique()) > 5


def test_remaining_aligned_rows_are_spread_and_small_classes_give_at_most_half() -> None:
    assert (
        sorted(make_split(LABELS, replace(SPEC, aligned=103), 0).aligned_counts)
        == [10] * 7 + [11] * 3
    )
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor([20, 400, 400]))
    split = make_split(labels, SplitSpec(parties=2, aligned=100, pool=50), 0)
    assert split.aligned_counts == (10, 45, 45)


def test_two_classes_keep_their_natural_rates() -> None:
    labels = torch.repeat_interleave(torch.arange(2), torch.tensor([7600, 2400]))
    split = make_split(labels, SplitSpec(parties=4, aligned=200, pool=500, gammas=(4.0,)), 0)
    assert split.aligned_counts == (152, 48)
    assert sorted(counts[0] for counts in split.counts) == [100, 400, 400, 400]


def test_gamma_is_the_requested_one() -> None:
    split = make_split(LABELS, replace(SPEC, gammas=(12.0, 6.0)), 0)
    assert split.notes == ()
    assert split.imbalance()["gamma"] == pytest.approx([12, 6, 12, 6], rel=0.15)


def test_an_overlap_is_rows_of_the_active_party_that_one_other_party_has() -> None:
    split = make_split(LABELS, replace(SPEC, overlap=30), 0)
    assert [len(rows) for rows in split.further] == [30, 30, 30]
    together = torch.cat(split.further)
    assert len(together.unique()) == 90
    assert set(together.tolist()) < set(split.pools[0].tolist())
    assert set(together.tolist()).isdisjoint(
        torch.cat([split.aligned, *split.pools[1:], split.test]).tolist()
    )
    assert torch.equal(split.further_of(0), together)
    assert torch.equal(split.pools[0][:90], together)  # where `every_label` looks for them
    for party in (1, 2, 3):
        assert torch.equal(split.further_of(party), split.further[party - 1])


def test_an_overlap_leaves_all_other_rows_where_they_were() -> None:
    plain, overlapping = (make_split(LABELS, replace(SPEC, overlap=n), 0) for n in (0, 30))
    assert torch.equal(plain.aligned, overlapping.aligned)
    assert all(torch.equal(a, b) for a, b in zip(plain.pools, overlapping.pools, strict=True))
    assert not len(plain.further_of(0))
    assert plain.hash != overlapping.hash


def test_the_hash_without_overlap_is_that_of_older_records() -> None:
    split = make_split(LABELS, SPEC, 0)
    digest = hashlib.sha256()
    for rows in (split.aligned, *split.pools, split.test):
        digest.update(len(rows).to_bytes(8, "little") + rows.numpy().tobytes())
    assert split.hash == digest.hexdigest()


@pytest.mark.parametrize(
    ("overlap", "line"), [(67, "an overlap of 67 rows with each of 3 parties"), (-1, "not -1")]
)
def test_an_overlap_that_does_not_fit_is_refused(overlap: int, line: str) -> None:
    assert make_split(LABELS, replace(SPEC, overlap=66), 0).further_of(0).shape == (198,)
    with pytest.raises(UserError, match=line):
        make_split(LABELS, replace(SPEC, overlap=overlap), 0)


def test_summary_and_json_hold_what_the_split_is() -> None:
    split = make_split(LABELS, SPEC, 0)
    record = json.loads(json.dumps(split.as_json()))
    assert record["hash"] == split.hash
    assert record["pool_counts"] == [list(c) for c in split.counts]
    for key in ("gamma", "mid", "wcs"):
        assert len(record[key]) == 4
    assert split.hash in split.summary()
    assert "party 4: 200 pool rows" in split.summary()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"aligned": 5000}, "10 to 1,500 aligned rows fit"),
        ({"aligned": 3}, "10 to 1,500 aligned rows fit"),
        ({"pool": 900}, "4 pools of 10 to 725 rows fit, not 900"),
        ({"pool": 5}, "4 pools of 10 to 725 rows fit, not 5"),
        ({"parties": 291, "pool": None}, "class 0 has 290 left, but each of 291 pools needs one"),
        ({"parties": 0}, "at least one party"),
        ({"setting": "zero"}, "normal, few_shot, zero_shot"),
        ({"setting": "zero_shot"}, "needs the classes"),
        ({"classes": (3,)}, "setting is normal"),
        ({"setting": "zero_shot", "classes": (10,)}, r"class 10 does not exist; .* classes 0\.\.9"),
        ({"setting": "zero_shot", "classes": (-1,)}, "class -1 does not exist"),
        ({"setting": "zero_shot", "classes": (3, 3)}, "name each class once"),
        ({"setting": "zero_shot", "classes": tuple(range(10))}, "leave at least one"),
        ({"setting": "few_shot", "classes": (3,), "shots": 30}, "class 3 has only 10 aligned rows"),
        ({"setting": "few_shot", "classes": (3,), "shots": 0}, "choose zero_shot"),
        ({"gammas": (0.5,)}, "at least 1"),
        ({"profile": "zipf"}, "unknown imbalance profile"),
        ({"pool": 720, "exact": True}, "do not meet the profile exactly .*; 4 x 606 do"),
    ],
)
def test_a_request_that_does_not_fit_says_what_would(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make_split(LABELS, replace(SPEC, **change), 0)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_what_an_error_says_would_fit_does_fit() -> None:
    assert len(make_split(LABELS, replace(SPEC, pool=725), 0).pools[0]) == 725
    make_split(LABELS, replace(SPEC, aligned=1500, pool=None), 0)
    assert make_split(LABELS, replace(SPEC, pool=606, exact=True), 0).notes == ()


def check_default(name: str, spec: SplitSpec) -> Split:
    dataset = sources.load(name)
    split = split_dataset(dataset, spec, 0)
    rows = torch.cat([split.aligned, *split.pools])
    assert len(rows.unique()) == len(rows)
    assert torch.equal(split.test, dataset.test)
    assert not torch.isin(rows, dataset.test).any()
    assert len({len(pool) for pool in split.pools}) == 1
    return split


def test_default_digits() -> None:
    assert len(check_default("digits", SplitSpec()).pools[0]) == POOL_ROWS["digits"]


@pytest.mark.parametrize(
    ("name", "mid", "wcs"),
    [
        pytest.param(
            "fashion_mnist",
            [0.232, 0.232, 0.232, 0.231],
            [0.842, 0.841, 0.836, 0.805],
            id="fashion",
        ),
        pytest.param(
            "modelnet10", [0.228, None, None, 0.138], [0.862, 0.862, 0.862, 0.842], id="modelnet"
        ),
        pytest.param("credit", [0.331, 0.502, 0.364, None], None, id="credit"),
        pytest.param("adult", [0.540, None, 0.513, None], None, id="adult"),
    ],
)
def test_default_splits_are_near_the_papers(
    name: str, mid: list[float | None], wcs: list[float] | None
) -> None:
    if not sources.available(name):
        pytest.skip(f"{name} is not on this machine")
    split = check_default(name, SplitSpec())
    assert len(split.pools[0]) == POOL_ROWS[name]
    measures = split.imbalance()
    for ours, paper in zip(measures["mid"], mid, strict=True):
        assert paper is None or ours == pytest.approx(paper, abs=0.03)
    if wcs is not None:
        assert measures["wcs"] == pytest.approx(wcs, abs=0.1)


@requires("modelnet10")
@pytest.mark.parametrize("aligned", [200, 600, 1000])
@pytest.mark.parametrize("parties", [2, 4, 6, 8])
def test_modelnet10_works_for_every_size_of_the_paper(aligned: int, parties: int) -> None:
    split = check_default("modelnet10", SplitSpec(aligned=aligned, parties=parties))
    assert len(split.aligned) == aligned
    assert split.aligned_counts[0] == min(aligned // 10, 53)
    assert len(split.pools[0]) == (700 if parties <= 4 else (3991 - aligned) // parties)
    assert bool(split.notes) or len(split.pools[0]) == 700
