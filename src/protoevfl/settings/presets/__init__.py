"""Named settings of the methods, as JSON files in this folder: {preset: {data set or "*": {field: value}}}.

A preset's "*" part holds for every data set, the data set's own part comes on top; "images" and "tables" lie between.
Nested settings use dots ("head.epochs"). `protoevfl tune` writes these files' figures (docs/methods/tuning.md).
"""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from protoevfl import plain_settings
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
    made: Method = plain_settings.make(method_class(method), own)
    return made
