"""Named settings of the methods, as JSON files in this folder: {preset: {data set or "*": {field: value}}}.

A preset's "*" part holds for every data set, the data set's own part comes on top; "images" and "tables" lie between.
Nested settings use dots ("head.epochs"). `protoevfl tune` writes these files' figures (docs/methods/tuning.md).
"""

import dataclasses
import difflib
import json
import typing
from collections.abc import Mapping
from importlib import resources
from typing import Any

from protoevfl.errors import UserError
from protoevfl.method import Method
from protoevfl.methods import method_class

TABLES = ("adult", "credit", "table")


def presets(method: str) -> dict[str, Any]:
    """All presets of a method; without a file there is only `default`, the fields' own values."""
    file = resources.files(__name__).joinpath(f"{method}.json")
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"default": {}}
    return found


def settings(method: str, preset: str, dataset: str) -> dict[str, Any]:
    """The fields a preset sets for a data set, dotted names."""
    known = presets(method)
    if preset not in known:
        raise UserError(f"{method} has no preset '{preset}'; it has {', '.join(known)}")
    parts = known[preset]
    kind = "tables" if dataset in TABLES else "images"
    return {**parts.get("*", {}), **parts.get(kind, {}), **parts.get(dataset, {})}


def build(
    method: str, preset: str = "default", dataset: str = "", overrides: Mapping[str, Any] | None = None
) -> Method:
    """A method with its preset's fields and overrides on top."""
    wanted = {**settings(method, preset, dataset), **(overrides or {})}
    own = {name: value for name, value in wanted.items() if not name.startswith("privacy.")}  # see guarded.py
    made: Method = _make(method_class(method), own)
    return made


def _make(cls: type, values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(cls)
    names = {f.name for f in dataclasses.fields(cls)}
    plain: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        first, _, rest = name.partition(".")
        if first not in names or (rest and not dataclasses.is_dataclass(hints[first])):
            near = difflib.get_close_matches(first, names, 1)
            raise UserError(
                f"{cls.__name__} has no setting '{name}'" + (f"; did you mean '{near[0]}'?" if near else "")
            )
        if rest:
            nested.setdefault(first, {})[rest] = value
        else:
            plain[first] = _checked(cls, first, value, hints[first])
    return cls(**plain, **{name: _make(hints[name], part) for name, part in nested.items()})


def _checked(cls: type, name: str, value: Any, hint: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{cls.__name__}.{name} must be a list, not {value!r}")
        return tuple(value)
    if dataclasses.is_dataclass(hint) and not isinstance(value, typing.cast(type, hint)):
        raise UserError(f"{cls.__name__}.{name} is a group of settings: set them one by one, as '{name}.<setting>'")
    allowed = typing.get_args(hint) or (hint,)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = tuple(t for t in allowed if t in (int, float, bool, str, type(None)))
    if plain and (not isinstance(value, plain) or (isinstance(value, bool) and bool not in plain)):
        raise UserError(f"{cls.__name__}.{name} must be {' or '.join(t.__name__ for t in plain)}, not {value!r}")
    return value
