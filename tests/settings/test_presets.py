"""Presets set fields by data set; overrides come on top; a wrong name or type is one clear line."""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from protoevfl.errors import UserError
from protoevfl.methods import METHODS, method_class
from protoevfl.methods.split import Vanilla
from protoevfl.privacy.policy import PrivacySettings, settings_from, split_overrides
from protoevfl.rows import sources
from protoevfl.settings import presets
from protoevfl.validation import assembled, from_dotted

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
    parts = {
        "*": {"a": 1, "b": 1, "c": 1},
        "images": {"b": 2, "c": 2},
        "tables": {"b": 3},
        "digits": {"c": 4},
    }
    monkeypatch.setattr(presets, "written", lambda method: {"p": parts})
    assert presets.settings("x", "p", "digits") == {"a": 1, "b": 2, "c": 4}
    assert presets.settings("x", "p", "adult") == {"a": 1, "b": 3, "c": 1}
    assert presets.settings("x", "p", "modelnet10") == {"a": 1, "b": 2, "c": 2}


def test_a_preset_inherits_all_but_what_it_is_without(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "_base": {"*": {"a": 1, "g.x": 1, "g.y": 1, "gx": 1}, "digits": {"a": 2}},
        "p": {
            "inherits": "_base",
            "without": ["g"],
            "*": {"b": 3},
            "adult": {"inherits": "credit"},
            "credit": {"c": 4},
        },
        "q": {"inherits": "p", "without": ["gx"], "*": {"b": 5}},
    }
    monkeypatch.setattr(presets, "written", lambda method: known)
    assert presets.settings("x", "p", "digits") == {"a": 2, "gx": 1, "b": 3}
    assert presets.settings("x", "q", "digits") == {"a": 2, "b": 5}
    assert presets.settings("x", "p", "adult") == {"a": 1, "gx": 1, "b": 3, "c": 4}
    assert presets.presets("x") == ["p", "q"]
    with pytest.raises(UserError, match="no preset '_base'; it has p, q"):
        presets.settings("x", "_base", "digits")


def test_own_rows_have_a_floor_under_which_a_class_is_not_shown_and_data_sets_do_not() -> None:
    for kind in presets.OWN_DATA:
        assert presets.settings("proto_evfl", "default", kind)["privacy.min_class_count"] == 5
    for dataset in sources.NAMES:
        assert "privacy.min_class_count" not in presets.settings("proto_evfl", "default", dataset)


KINDS = (*sources.NAMES, *presets.OWN_DATA)


def lines(method: str) -> Iterator[tuple[str, str, str]]:
    """(preset, part, name) of every line that sets something."""
    for preset, parts in presets.written(method).items():
        for part, settings in parts.items():
            if isinstance(settings, dict):
                yield from ((preset, part, name) for name in settings if name != "inherits")


def resolved(method: str) -> list[dict[str, Any]]:
    return [
        presets.settings(method, preset, kind)
        for preset in presets.presets(method)
        for kind in KINDS
    ]


@pytest.mark.parametrize("method", METHODS)
def test_every_line_of_a_preset_says_something_new(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it some data set would have other settings."""
    whole, before = presets.written(method), resolved(method)
    for preset, part, name in lines(method):
        less = copy.deepcopy(whole)
        del less[preset][part][name]
        with monkeypatch.context() as patch:
            patch.setattr(presets, "written", lambda _, less=less: less)
            assert resolved(method) != before, f"{preset} {part}: {name} repeats what is inherited"


@pytest.mark.parametrize(("method", "preset", "dataset"), EVERY)
def test_what_the_package_ships_passes_the_check_of_what_users_give(
    method: str, preset: str, dataset: str
) -> None:
    own, privacy = split_overrides(presets.settings(method, preset, dataset))
    shipped, checked = (
        presets.build(method, preset, dataset),
        from_dotted(method_class(method), own, method),
    )
    assert (shipped, repr(shipped)) == (checked, repr(checked))
    assert repr(assembled(PrivacySettings, privacy)) == repr(settings_from(privacy))


def test_unknown_presets_and_methods_say_which_there_are() -> None:
    with pytest.raises(UserError, match=r"no preset 'best'; it has .*default"):
        presets.build("vanilla", "best")
    with pytest.raises(UserError, match=r"unknown method 'proto'; there are .*proto_evfl"):
        presets.build("proto")


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Vanilla().epochs = 3  # type: ignore[misc]
