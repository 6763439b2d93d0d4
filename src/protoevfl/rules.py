"""What a field of a settings class allows beyond its type, and how that reads in words."""

import dataclasses
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

Schema = dict[str, Any]  # of pydantic's core
MOST = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Between:
    """A number from `low` to `high`."""

    low: float
    high: float = MOST

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Schema]) -> Schema:
        return {**handler(source), "ge": self.low, "le": self.high}


@dataclasses.dataclass(frozen=True)
class OneOf:
    """One of a few texts."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Schema]) -> Schema:
        return {"type": "literal", "expected": list(self.names)}


@dataclasses.dataclass(frozen=True)
class Matching:
    """A text with this pattern in it; `words` say in an error what is wanted."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Schema]) -> Schema:
        return {**handler(source), "pattern": self.pattern}


@dataclasses.dataclass(frozen=True)
class Listed:
    """A list of distinct texts; one text alone is a list of one, and "all" is None where `every` is
    set."""

    words: str = "a list of names in quotes"
    least: int = 0
    every: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Schema]) -> Schema:
        function = {"type": "no-info", "function": self._names}
        return {"type": "function-before", "function": function, "schema": handler(source)}

    def _names(self, value: Any) -> tuple[str, ...] | None:
        if self.every and value == "all":
            return None
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
            raise ValueError(self.words)
        if len(names) < self.least:
            raise ValueError(self.words)
        if len(set(names)) < len(names):
            raise ValueError("a list without repetitions")
        return tuple(names)


@dataclasses.dataclass(frozen=True)
class Decided:
    """One of a few texts, or a table of numbers between 0 and 1 by name."""

    names: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"one of {', '.join(self.names)}, or a table of thresholds between 0 and 1 per class"

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Schema]) -> Schema:
        function = {"type": "no-info", "function": self._rule}
        return {"type": "function-plain", "function": function}

    def _rule(self, value: Any) -> str | dict[str, float]:
        if isinstance(value, str) and value in self.names:
            return value
        if not isinstance(value, dict) or not value:
            raise ValueError(self.words)
        if not all(_is_number(v) and 0 < v < 1 for v in value.values()):
            raise ValueError(self.words)
        return {str(name): float(v) for name, v in value.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TEXT = Annotated[str, Matching(r"\S", "a text in quotes")]
NAMES = Annotated[tuple[str, ...], Listed()]


def wanted(hint: Any, none: str = "") -> str:
    """What an annotation allows, in words; `none` is added where it allows None.

    >>> wanted(Annotated[int, Between(1, 9)] | None, " or none")
    'a whole number from 1 to 9 or none'
    """
    bare, rules = parts(hint)
    none = none if _optional(hint) else ""
    for rule in rules:
        if isinstance(rule, OneOf):
            return f"one of {', '.join(rule.names)}{none}"
        if isinstance(rule, Matching | Listed | Decided):
            return rule.words + none
    arguments = typing.get_args(bare)
    if typing.get_origin(bare) is tuple and arguments[-1] is not Ellipsis:
        return f"a list of {len(arguments)} numbers{none}"
    kinds = {int: "a whole number", float: "a number", bool: "true or false", str: "a text",
             tuple: "a list", Path: "a text in quotes"}  # fmt: skip
    text = kinds.get(typing.get_origin(bare) or bare, "a table ([...] with keys below it)")
    for rule in rules:
        if isinstance(rule, Between):
            text += f" from {rule.low:.10g} to {rule.high:.10g}"
    return text + none


def annotations(cls: Any) -> dict[str, Any]:
    """{key: annotation} of a dataclass; a key is the field's name or, where the class says so, its
    alias."""
    hints = typing.get_type_hints(cls, include_extras=True)
    key = getattr(cls, "__pydantic_config__", {}).get("alias_generator", str)
    return {key(field.name): hints[field.name] for field in dataclasses.fields(cls)}


def parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """(type, rules) of an annotation, without None."""
    rules: tuple[Any, ...] = ()
    while True:
        if typing.get_origin(hint) is Annotated:
            hint, *more = typing.get_args(hint)
            rules += tuple(more)
        elif _optional(hint):
            (hint,) = (
                argument for argument in typing.get_args(hint) if argument is not types.NoneType
            )
        else:
            return hint, rules


def _optional(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    return types.NoneType in typing.get_args(hint)
