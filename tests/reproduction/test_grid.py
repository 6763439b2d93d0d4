"""How cells are made from names, and their small versions for --quick."""

import pytest

from protoevfl.reproduction import grid
from protoevfl.reproduction.grid import _small, cell, smalls


def test_a_method_with_a_preset_is_one_row_and_two_settings() -> None:
    made = cell("adult", "proto_evfl one_way", 600)
    assert (made.config.method, made.config.preset, made.config.aligned) == (
        "proto_evfl",
        "one_way",
        600,
    )
    assert made.tags["method"] == grid.name_of("proto_evfl", "one_way")
    assert grid.name_of("vanilla") == "vanilla"


def test_a_setting_without_classes_is_about_the_papers_class_3() -> None:
    assert cell("modelnet10", "vanilla", setting="zero_shot").config.classes == (grid.ABSENT,)
    assert cell("modelnet10", "vanilla", setting="few_shot", classes=(1, 2)).config.classes == (
        1,
        2,
    )
    assert cell("modelnet10", "vanilla").config.classes == ()


def test_the_number_of_parties_is_told_by_the_tag() -> None:
    assert cell("modelnet10", "vanilla", parties="8").config.parties == 8
    assert cell("modelnet10", "vanilla").config.parties == 4


@pytest.mark.parametrize("method", grid.QUICK)
def test_a_small_cell_keeps_its_own_settings_and_shortens_what_is_long(method: str) -> None:
    made = _small(
        cell("modelnet10", method, 1000, overrides={"epochs": 80, "privacy.rank": 2}, length="80")
    )
    assert (made.config.dataset, made.config.aligned, made.config.pool) == ("digits", 100, 100)
    assert made.config.overrides["epochs"] == 3
    assert made.config.overrides["privacy.rank"] == 2
    assert (made.tags["length"], made.tags["quick"], made.tags["aligned"]) == ("3", "yes", "100")


def test_one_way_stays_one_way_when_small() -> None:
    assert _small(cell("modelnet10", "proto_evfl one_way")).config.overrides["rounds.count"] == 0
    assert _small(cell("modelnet10", "proto_evfl")).config.overrides["rounds.count"] == 1


def test_smalls_takes_what_was_asked_for_and_each_place_once() -> None:
    some = [cell(d, m, n) for d in grid.IMAGES for m in ("vanilla", "laser") for n in grid.ALIGNED]
    assert [c.config.method for c in smalls(some)] == ["vanilla", "laser"]
    assert [c.config.method for c in smalls(some, method="laser")] == ["laser"]
    assert smalls(some, dataset="nowhere") == ()
