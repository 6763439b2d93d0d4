"""Means over seeds: what is missing or of another shape is left out."""

import numpy as np
import pytest

from protoevfl.bench.world import RunConfig
from protoevfl.reproduction.pages.averages import _stacked, groups, mean, spread
from protoevfl.reproduction.spec import Cell

SEEDS = [
    {"m": {"a": 0.5, "r": [1.0, None]}},
    {"m": {"a": 0.7, "r": [0.0, 0.4]}},
    {"m": {"a": None}},
    {},
]


def test_the_mean_is_over_the_seeds_that_have_the_value() -> None:
    assert mean(SEEDS, "m.a") == pytest.approx(0.6)
    assert mean(SEEDS, "m.nothing") is None


def test_a_class_that_a_seed_lacks_is_averaged_over_the_others() -> None:
    found = mean(SEEDS, "m.r")
    assert found is not None
    assert found.tolist() == [0.5, 0.4]


def test_other_shapes_and_texts_are_left_out() -> None:
    found = _stacked([{"v": [1, 2]}, {"v": [1, 2, 3]}, {"v": "text"}, {"v": [3, 4]}], "v")
    assert found is not None
    assert np.array_equal(found, [[1, 2], [3, 4]])


def test_one_seed_has_no_spread() -> None:
    assert spread(SEEDS[:1], "m.a") == 0.0
    assert spread(SEEDS, "m.a") == pytest.approx(0.02**0.5)


def test_cells_without_records_are_in_no_group() -> None:
    cells = [Cell({"dataset": d}, RunConfig()) for d in ("a", "b", "a")]
    found = groups([(cells[0], [{}]), (cells[1], []), (cells[2], [{}])], "dataset", "method")
    assert {name: len(some) for name, some in found.items()} == {("a", ""): 2}
