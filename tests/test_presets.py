"""Presets set fields by data set; overrides come on top; a wrong name or type is one clear line."""

import dataclasses
import json
from typing import Any, ClassVar

import pytest

from protoevfl import presets
from protoevfl.data import sources
from protoevfl.errors import UserError
from protoevfl.methods import METHODS
from protoevfl.methods.split import Vanilla

EVERY = [(m, p, d) for m in METHODS for p in presets.presets(m) for d in sources.NAMES]


@pytest.mark.parametrize(("method", "preset", "dataset"), EVERY)
def test_every_preset_builds(method: str, preset: str, dataset: str) -> None:
    made = presets.build(method, preset, dataset)
    assert made.name == method
    assert dataclasses.is_dataclass(made)
    assert dataclasses.replace(made) == made  # type: ignore[type-var]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_default(method: str) -> None:
    assert "default" in presets.presets(method)


def test_the_data_sets_own_part_comes_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"*": {"a": 1, "b": 1, "c": 1}, "images": {"b": 2, "c": 2}, "tables": {"b": 3}, "digits": {"c": 4}}
    monkeypatch.setattr(presets, "presets", lambda method: {"p": parts})
    assert presets.settings("x", "p", "digits") == {"a": 1, "b": 2, "c": 4}
    assert presets.settings("x", "p", "adult") == {"a": 1, "b": 3, "c": 1}
    assert presets.settings("x", "p", "modelnet10") == {"a": 1, "b": 2, "c": 2}


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
    made: Outer = presets._make(Outer, overrides)
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


def test_unknown_presets_and_methods_say_which_there_are() -> None:
    with pytest.raises(UserError, match=r"no preset 'best'; it has .*default"):
        presets.build("vanilla", "best")
    with pytest.raises(UserError, match=r"unknown method 'proto'; there are .*proto_evfl"):
        presets.build("proto")


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Vanilla().epochs = 3  # type: ignore[misc]
