"""Presets set fields by data set; overrides come on top; a wrong name or type is one clear line."""

import dataclasses

import pytest

from protoevfl.errors import UserError
from protoevfl.methods import METHODS
from protoevfl.methods.split import Vanilla
from protoevfl.rows import sources
from protoevfl.settings import presets

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


def test_unknown_presets_and_methods_say_which_there_are() -> None:
    with pytest.raises(UserError, match=r"no preset 'best'; it has .*default"):
        presets.build("vanilla", "best")
    with pytest.raises(UserError, match=r"unknown method 'proto'; there are .*proto_evfl"):
        presets.build("proto")


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Vanilla().epochs = 3  # type: ignore[misc]
