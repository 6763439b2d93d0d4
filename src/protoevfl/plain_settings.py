"""A dataclass of settings from plain names and values: dotted names reach into groups, every type is checked.

>>> @dataclasses.dataclass(frozen=True)
... class Head:
...     epochs: int = 5
...     rate: float | None = None
>>> make(Head, {"epochs": 7, "rate": 1})
Head(epochs=7, rate=1.0)
"""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from protoevfl.errors import UserError, nearest


def make(cls: type, values: Mapping[str, Any], called: str = "") -> Any:
    """`cls` with these fields; `called` is its name in errors."""
    called = called or cls.__name__
    hints = typing.get_type_hints(cls)
    names = {f.name for f in dataclasses.fields(cls)}
    plain: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        first, _, rest = name.partition(".")
        if first not in names or (rest and not dataclasses.is_dataclass(hints[first])):
            raise UserError(f"{called} has no setting '{name}'; {nearest(first, names)}")
        if rest:
            nested.setdefault(first, {})[rest] = value
        else:
            plain[first] = _checked(f"{called}.{first}", value, hints[first])
    return cls(**plain, **{name: make(hints[name], part) for name, part in nested.items()})


def _checked(place: str, value: Any, hint: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{place} must be a list, not {value!r}")
        return tuple(value)
    if dataclasses.is_dataclass(hint) and not isinstance(value, typing.cast(type, hint)):
        name = place.rpartition(".")[2]
        raise UserError(f"{place} is a group of settings: set them one by one, as '{name}.<setting>'")
    allowed = typing.get_args(hint) or (hint,)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = tuple(t for t in allowed if t in (int, float, bool, str, type(None)))
    if plain and (not isinstance(value, plain) or (isinstance(value, bool) and bool not in plain)):
        raise UserError(f"{place} must be {' or '.join(t.__name__ for t in plain)}, not {value!r}")
    return value
