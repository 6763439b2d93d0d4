"""Cells, fields and the way to a number in a record."""

import pytest

from protoevfl.bench.world import RunConfig
from protoevfl.reproduction.spec import MEGABYTES, Cell, Field, dig, percent

RECORD = {
    "metrics": {"accuracy": 0.25, "subsets": {"0+1": 0.5}, "gate": [[0.1, 0.9]]},
    "bytes": {"up": 3, "down": 4},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metrics.accuracy", 0.25),
        ("metrics.subsets.0+1", 0.5),
        ("metrics.gate.0.1", 0.9),
        ("metrics.gate.0.2", None),
        ("metrics.gate.first", None),
        ("metrics.accuracy.more", None),
        ("nothing.at.all", None),
    ],
)
def test_a_path_leads_to_a_value_or_to_none(path: str, value: float | None) -> None:
    assert dig(RECORD, path) == value


def test_a_text_is_not_a_sequence_of_values() -> None:
    assert dig({"device": "cpu"}, "device.0") is None


def test_a_field_scales_and_adds_up() -> None:
    assert percent("accuracy")(RECORD, {}) == 25.0
    assert MEGABYTES.value(RECORD, {}) == pytest.approx(7e-6)


def test_a_field_with_a_missing_part_is_missing_as_a_whole() -> None:
    assert Field(("bytes.up", "bytes.sideways"))(RECORD, {}) is None
    assert Field(("metrics.subsets",))(RECORD, {}) is None


def test_tags_fill_in_a_path() -> None:
    assert Field(("metrics.subsets.{who}",))(RECORD, {"who": "0+1"}) == 0.5


def test_another_place_is_the_same_run() -> None:
    one = Cell({"dataset": "digits"}, RunConfig(), priority=2)
    other = one.tagged(length="4")
    assert other.tags == {"dataset": "digits", "length": "4"}
    assert (other.config, other.priority) == (one.config, 2)
    assert one.tags == {"dataset": "digits"}
