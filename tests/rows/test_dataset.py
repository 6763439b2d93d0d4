"""Quadrants and fixed test parts."""

import numpy as np
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.rows.dataset import (
    PAIRS,
    Dataset,
    _circle_views,
    _pair_views,
    held_out,
    party_views,
    quadrants,
)


def test_quadrants_are_the_four_corners() -> None:
    images = np.random.default_rng(0).integers(0, 255, (3, 6, 8), dtype=np.uint8)
    parts = quadrants(images).numpy()
    corners = [images[:, :3, :4], images[:, :3, 4:], images[:, 3:, :4], images[:, 3:, 4:]]
    assert parts.dtype == np.uint8
    for part, corner in zip(parts.transpose(1, 0, 2, 3), corners, strict=True):
        assert (part == corner).all()


def test_held_out_rows_are_the_same_every_time_and_a_share_of_each_class() -> None:
    labels = np.repeat([0, 1], [100, 40])
    train, test = held_out(labels, 0.2)
    assert torch.equal(test, held_out(labels, 0.2)[1])
    assert sorted(torch.cat([train, test]).tolist()) == list(range(140))
    assert np.bincount(labels[test.numpy()]).tolist() == [20, 8]


@pytest.mark.parametrize("bad", [-1, 2])
def test_labels_outside_the_classes_are_refused(bad: int) -> None:
    with pytest.raises(UserError, match=r"0\.\.1"):
        Dataset(
            "own",
            ("a", "b"),
            torch.zeros(1, 4, 1, 1),
            torch.tensor([bad]),
            torch.arange(1),
            torch.arange(0),
        )


PARTIES = range(2, 9)


def images(views: int) -> Dataset:
    rows = torch.zeros(2, dtype=torch.int64)
    return Dataset("own", ("a",), torch.zeros(2, views, 1, 1, dtype=torch.uint8), rows, rows, rows)


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("views", [4, 12])
def test_all_views_are_held_and_images_can_be_stacked(views: int, parties: int) -> None:
    held = party_views(images(views), parties)
    assert len(held) == parties
    assert {v for part in held for v in part} == set(range(views))
    assert len({len(part) for part in held}) == 1
    assert all(len(set(part)) == len(part) for part in held)


def test_the_papers_four_parties() -> None:
    assert party_views(images(4), 4) == [[0, 1], [2, 3], [0, 2], [1, 3]]
    assert party_views(images(12), 4) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


@pytest.mark.parametrize("parties", PARTIES)
def test_parties_differ_up_to_six_pairs(parties: int) -> None:
    assert len({tuple(part) for part in _pair_views(4, parties)}) == min(parties, 6)
    assert len(set(PAIRS)) == 6
    assert len({tuple(part) for part in _circle_views(parties)}) == parties


@pytest.mark.parametrize("columns", [14, 23])
def test_table_columns_are_cut_in_four_neighbouring_parts(columns: int) -> None:
    first, second = _pair_views(columns, 2)
    assert first + second == list(range(columns))
    assert abs(len(first) - len(second)) <= 2


@pytest.mark.parametrize("parties", [1, 9])
def test_too_few_or_many_parties(parties: int) -> None:
    with pytest.raises(UserError, match="2 to 8"):
        party_views(images(4), parties)
