"""Quadrants and fixed test parts."""

import numpy as np
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.rows.dataset import Dataset, held_out, quadrants


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
