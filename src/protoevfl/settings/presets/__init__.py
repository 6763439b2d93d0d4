"""Named settings of the methods, as JSON files in this folder: {preset: {data set or "*": {field:
value}}}.

A preset's "*" part holds for every data set, the data set's own part comes on top; "images" and
"tables" lie between. Nested settings use dots ("head.epochs"). A line says something new:

    "inherits": "default"     in a preset: its lines come on top of that preset's
    "without": ["privacy"]    in a preset: these settings or groups of settings are not inherited
    "inherits": "digits"      in a data set's part: its lines come on top of that part's

A preset whose name begins with "_" is there to be inherited. `protoevfl tune` writes these files'
figures (docs/methods/tuning.md).
"""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from protoevfl.errors import UserError
from protoevfl.method import Method
from protoevfl.methods import method_class
from protoevfl.privacy.policy import split_overrides
from protoevfl.validation import over_shipped

TABLES = ("adult", "credit", "digits_table", "table")
OWN_DATA = ("table", "images")  # stand for a user's own rows in place of a data set
# own rows under which a class is not shown to other parties, unless the user says otherwise
LEAST_OF_CLASS = 5


def presets(method: str) -> list[str]:
    """The presets that can be chosen; without a file there is only `default`, the fields' own
    values."""
    return [name for name in written(method) if not name.startswith("_")]


def written(method: str) -> dict[str, Any]:
    """What the file of a method says."""
    file = resources.files(__name__).joinpath(f"{method}.json")
    presets_of_file: dict[str, Any] = (
        json.loads(file.read_text()) if file.is_file() else {"default": {}}
    )
    return presets_of_file


def settings(method: str, preset: str, dataset: str) -> dict[str, Any]:
    """The fields a preset sets for a data set, dotted names."""
    if preset not in presets(method):
        raise UserError(f"{method} has no preset '{preset}'; it has {', '.join(presets(method))}")
    floor = {"privacy.min_class_count": LEAST_OF_CLASS} if dataset in OWN_DATA else {}
    return {**floor, **_lines(written(method), preset, dataset)}


def build(
    method: str,
    preset: str = "default",
    dataset: str = "",
    overrides: Mapping[str, Any] | None = None,
) -> Method:
    """A method with its preset's fields and overrides on top."""
    cls = method_class(method)
    shipped, given = (
        split_overrides(values)[0]
        for values in (settings(method, preset, dataset), overrides or {})
    )
    built: Method = over_shipped(cls, shipped, given, method)
    return built


def _lines(known: Mapping[str, Any], preset: str, dataset: str) -> dict[str, Any]:
    parts = known[preset]
    inherited = _lines(known, parts["inherits"], dataset) if "inherits" in parts else {}
    dropped = tuple(parts.get("without", ()))
    lines = {name: value for name, value in inherited.items() if not _within(name, dropped)}
    for part in ("*", "tables" if dataset in TABLES else "images", dataset):
        lines |= _part(parts, part)
    return lines


def _part(parts: Mapping[str, Any], name: str) -> dict[str, Any]:
    lines = dict(parts.get(name, {}))
    return {**_part(parts, lines.pop("inherits")), **lines} if "inherits" in lines else lines


def _within(name: str, groups: tuple[str, ...]) -> bool:
    return any(name == group or name.startswith(f"{group}.") for group in groups)
