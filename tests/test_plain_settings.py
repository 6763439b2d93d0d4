"""A dataclass from plain values: dotted names reach into groups, a wrong name or type is one clear line."""

import dataclasses
import json
from typing import Any, ClassVar

import pytest

from protoevfl import plain_settings
from protoevfl.errors import UserError


@dataclasses.dataclass(frozen=True)
class Inner:
    epochs: int = 1
    lr: float = 0.1


@dataclasses.dataclass(frozen=True)
class Outer:
    """Fields of every kind that methods have."""

    name: ClassVar[str] = "outer"
    rounds: int = 0
    norm: bool = True
    temperature: float | None = 0.2
    layers: tuple[str, ...] = ("output",)
    head: Inner = dataclasses.field(default_factory=Inner)


def built(overrides: dict[str, Any]) -> Outer:
    made: Outer = plain_settings.make(Outer, overrides)
    return made


def test_overrides_reach_nested_settings_and_win() -> None:
    made = built({"head.epochs": 7, "head.lr": 1, "rounds": 2, "temperature": None})
    assert made == Outer(rounds=2, temperature=None, head=Inner(7, 1.0))
    assert isinstance(made.head.lr, float)
    assert built({}) == Outer()


def test_a_list_from_json_becomes_a_tuple() -> None:
    made = built(json.loads('{"layers": ["output", "hidden"]}'))
    assert made.layers == ("output", "hidden")
    hash(made)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ({"head.epoch": 3}, "Inner has no setting 'epoch'; did you mean 'epochs'?"),
        ({"rond": 3}, "no setting 'rond'"),
        ({"rounds.x": 3}, "no setting 'rounds.x'"),
        ({"rounds": "three"}, "Outer.rounds must be int, not 'three'"),
        ({"rounds": True}, "must be int, not True"),
        ({"rounds": 2.5}, "must be int, not 2.5"),
        ({"rounds": [2]}, "must be int"),
        ({"norm": 1}, "must be bool, not 1"),
        ({"temperature": "hot"}, "must be float or NoneType"),
        ({"layers": "output"}, "Outer.layers must be a list, not 'output'"),
        ({"head": {"epochs": 3}}, "Outer.head is a group of settings"),
        ({"name": "other"}, "no setting 'name'"),
    ],
)
def test_bad_settings_are_refused(overrides: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        built(overrides)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_use_the_name_they_are_told() -> None:
    with pytest.raises(UserError, match=r"privacy\.rounds must be int"):
        plain_settings.make(Outer, {"rounds": "3"}, "privacy")
    with pytest.raises(
        UserError, match="privacy has no setting 'x'; known are head, layers, norm, rounds, temperature"
    ):
        plain_settings.make(Outer, {"x": 3}, "privacy")
