"""Settings that a user gives, checked in one place: TOML files, `--set`, job specifications,
policies.

The keys of a file are the fields of a frozen dataclass, and the annotations say what each allows:

    seed: Annotated[int, Between(0, 99)] = 0

pydantic checks the values, strictly: no bool for an int, no text for a number, no unknown name. It
is imported when a value is checked, so that what the package ships (its presets) works without it.
"""

import dataclasses
import json
import re
import tomllib
import typing
import warnings
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any, TypeVar

from protoevfl.errors import UserError, nearest
from protoevfl.rules import OneOf, annotations, parts, wanted

T = TypeVar("T")
MOST_BYTES = 1_000_000  # of a TOML file
MOST_DOTS = 100  # of a line outside quotes: tomllib takes time quadratic in the parts of a key


# ---------------------------------------------------------------- files


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, or one line that says why it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UserError(
                f"{path} is larger than {MOST_BYTES:,} bytes; no file of settings needs that"
            )
        text = data.decode()
        for number, line in enumerate(text.splitlines(), 1):
            if re.sub(r"\"[^\"]*\"|'[^']*'", "", line).count(".") > MOST_DOTS:
                raise UserError(
                    f"{path}: line {number} has more than {MOST_DOTS} dots outside quotes"
                )
        return tomllib.loads(text.replace("\r\n", "\n"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; save it with that encoding") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise UserError(f"{path} is nested too deeply; settings need few levels") from None


def checked(cls: type[T], values: Any, where: str, **given: Any) -> T:
    """The tables of a file as a `cls`, or one line that names the place, what is allowed and what
    was given.

    where: the file
    given: fields that the program fills in and a file must not name
    """
    for name in values.keys() & given.keys() if isinstance(values, Mapping) else ():
        raise UserError(
            f"{where} has no key '{name}'; {nearest(name, annotations(cls).keys() - given)}"
        )
    return _validated(cls, values, _Place(where), given)


# ---------------------------------------------------------------- dotted names


def from_dotted(cls: type[T], values: Mapping[str, Any], called: str) -> T:
    """A dataclass from names and values, where dots reach into groups; `called` is its name in
    errors.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Head:
    ...     epochs: int = 5
    ...     rate: float | None = None
    >>> from_dotted(Head, {"epochs": 7, "rate": 1}, "head")
    Head(epochs=7, rate=1.0)
    """
    if util.find_spec("pydantic") is None:
        warnings.warn("pydantic is not installed: types of settings are not checked", stacklevel=2)
        return assembled(cls, values)
    return _validated(cls, _nested(values, called), _Place(called, dotted=True), {})


def assembled(cls: type[T], values: Mapping[str, Any]) -> T:
    """The same of values that the package ships and its tests have checked."""
    try:
        return _assembled(cls, _nested(values, cls.__name__))
    except TypeError as error:
        raise UserError(f"{cls.__name__}: {error}") from None


def over_shipped(
    cls: type[T], shipped: Mapping[str, Any], given: Mapping[str, Any], called: str
) -> T:
    """What the package ships, with what a user gave on top; only the latter needs a check."""
    return from_dotted(cls, {**shipped, **given}, called) if given else assembled(cls, shipped)


def dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of nested tables; tuples become lists, as in JSON."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", list(value) if isinstance(value, tuple) else value


def _nested(values: Mapping[str, Any], called: str) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        table = tables
        for depth, group in enumerate(groups, 1):
            table = table.setdefault(group, {})
            if not isinstance(table, dict):
                raise UserError(_group(called, ".".join(groups[:depth])))
        if isinstance(value, Mapping):
            raise UserError(_group(called, name))
        table[last] = value
    return tables


def _assembled(cls: type[T], tables: Mapping[str, Any]) -> T:
    hints, values = annotations(cls), dict(tables)
    for name in tables.keys() & hints.keys():
        bare, value = parts(hints[name])[0], tables[name]
        if dataclasses.is_dataclass(bare):
            values[name] = _assembled(typing.cast(type, bare), value)
        elif isinstance(value, list):
            values[name] = tuple(value)
        elif bare is float and isinstance(value, int):
            values[name] = float(value)
    return cls(**values)


# ---------------------------------------------------------------- the check and its one line


@dataclasses.dataclass(frozen=True)
class _Place:
    """How errors are worded: of a file with tables, or of settings with dotted names."""

    name: str
    dotted: bool = False

    def unknown(self, path: list[Any], key: str, known: Collection[str]) -> str:
        if not self.dotted:
            return f"{self.section(path)} has no key '{key}'; {nearest(key, known)}"
        group = "".join(f"{part}." for part in path)
        return (
            f"{self.name} has no setting '{group}{key}'; "
            f"{nearest(group + key, [group + k for k in known])}"
        )

    def missing(self, path: list[Any], key: str) -> str:
        return f"{self.section(path)} needs the key '{key}'"

    def wrong(self, path: list[Any], text: str) -> str:
        if self.dotted:
            return f"{'.'.join([self.name, *path])} {text}"
        return f"{self.section(path[:-1])}: {path[-1]} {text}" if path else f"{self.name} {text}"

    def section(self, path: list[Any]) -> str:
        if not path:
            return self.name
        if len(path) > 1 and isinstance(path[1], int):
            return " ".join([self.name, f"[[{path[0]}]] {path[1] + 1}", *path[2:]])
        return f"{self.name} [{'.'.join(path)}]"


def _validated(cls: type[T], values: Any, place: _Place, given: Mapping[str, Any]) -> T:
    """Through JSON, in which pydantic is strict about scalars and still takes tables for
    dataclasses."""
    from pydantic import ValidationError

    def refuse(value: Any) -> Any:
        raise UserError(
            f"{place.name}: {_short(value)} is no number, text, true, false or list of them"
        )

    try:
        whole = {**values, **given} if given and isinstance(values, Mapping) else values
        text = json.dumps(whole, default=refuse, allow_nan=False)
    except ValueError:
        raise UserError(f"{place.name}: nan and inf are no settings") from None
    except RecursionError:
        raise UserError(f"{place.name} is nested too deeply; settings need few levels") from None
    try:
        built: T = _adapter(typing.cast(Any, cls)).validate_json(text, strict=True, extra="forbid")
        return built
    except UserError as error:  # of a __post_init__: values that do not go together
        raise UserError(str(error) if place.dotted else f"{place.name}: {error}") from None
    except ValidationError as error:
        problems: list[Any] = error.errors(include_url=False)
        # an unknown name explains a missing one
        problem = min(problems, key=lambda p: p["type"] != "unexpected_keyword_argument")
        raise UserError(_line(cls, values, problem, place, given)) from None


def _line(cls: type, values: Any, problem: Any, place: _Place, given: Collection[str]) -> str:
    """One line on what pydantic found, about the field that holds it and not a part of its
    value."""
    hint: Any = cls
    value, path, known = values, list[Any](), dict[str, Any]()
    for part in problem["loc"]:
        bare = parts(hint)[0]
        if dataclasses.is_dataclass(bare):
            known = annotations(bare)
            if part not in known:
                return place.unknown(path, part, known.keys() - given)
            if part not in value:
                return place.missing(path, part)
            hint = known[part]
        else:
            rows = [
                argument for argument in typing.get_args(bare) if dataclasses.is_dataclass(argument)
            ]
            if not rows:
                break
            hint = rows[0]
        path.append(part)
        value = value[part]
    bare, rules = parts(hint)
    for rule in rules:
        if isinstance(rule, OneOf) and isinstance(value, str):
            return place.wrong(path, f"= {_short(value)} is unknown; {nearest(value, rule.names)}")
    if place.dotted and dataclasses.is_dataclass(bare) and path:
        return _group(place.name, ".".join(path))
    if place.dotted and isinstance(value, dict):
        return place.unknown(path[:-1], f"{path[-1]}.{next(iter(value), '')}", known)
    reason = str(problem["ctx"]["error"]) if problem["type"] == "value_error" else ""
    allowed = reason or wanted(hint, " or none" if place.dotted else "")
    return place.wrong(path, f"must be {allowed}, not {_short(value)}")


def _group(called: str, name: str) -> str:
    return f"{called}.{name} is a group of settings: set them one by one, as '{name}.<setting>'"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


@cache
def _adapter(cls: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)
