"""One table of a TOML file, read key by key: unknown keys and wrong values end in a line that names the place."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from protoevfl.errors import UserError, nearest

T = TypeVar("T")
_REQUIRED: Any = object()


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, or one line that says why it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; save it with that encoding") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


class Section:
    """The keys of one table. `known` lists all it may have; each getter checks type and range."""

    def __init__(self, values: Any, where: str, known: Iterable[str]) -> None:
        self.where = where
        if not isinstance(values, Mapping):
            raise UserError(f"{where} must be a table ([...] with keys below it)")
        self._values = values
        known = set(known)
        for key in values:
            if key not in known:
                raise UserError(f"{where} has no key '{key}'; {nearest(key, known)}")

    def has(self, key: str) -> bool:
        return key in self._values

    def raw(self, key: str, default: Any = _REQUIRED) -> Any:
        if key in self._values:
            return self._values[key]
        if default is _REQUIRED:
            raise UserError(f"{self.where} needs the key '{key}'")
        return default

    def wrong(self, key: str, wanted: str) -> UserError:
        return UserError(f"{self.where}: {key} must be {wanted}, not {self._values.get(key)!r}")

    def text(self, key: str, default: str = _REQUIRED) -> str:
        value = self.raw(key, default)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, "a text in quotes")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.raw(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def choice(self, key: str, among: Iterable[str], default: str = _REQUIRED) -> str:
        value, names = self.text(key, default), list(among)
        if value not in names:
            raise UserError(f"{self.where}: {key} = '{value}' is unknown; {nearest(value, names)}")
        return value

    def whole(self, key: str, default: int, low: int, high: int = 2**31 - 1) -> int:
        value = self.raw(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, f"a whole number from {low} to {high}")
        return value

    def real(self, key: str, default: T, low: float, high: float) -> float | T:
        """A number in [low, high], or the default where the key is absent."""
        value = self.raw(key, default)
        if key not in self._values:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def names(self, key: str, default: tuple[str, ...] = _REQUIRED) -> tuple[str, ...]:
        """A list of distinct texts; one text alone is a list of one."""
        value = self.raw(key, default)
        value = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else None
        if value is None or not all(isinstance(v, str) and v for v in value):
            raise self.wrong(key, "a list of names in quotes")
        if len(set(value)) < len(value):
            raise self.wrong(key, "a list without repetitions")
        return tuple(value)

    def sizes(self, key: str) -> tuple[int, ...]:
        """A list of two or three whole numbers above zero."""
        value = self.raw(key)
        good = isinstance(value, list) and len(value) in (2, 3)
        if not good or not all(isinstance(v, int) and not isinstance(v, bool) and 0 < v <= 4096 for v in value):
            raise self.wrong(key, "[height, width] or [channels, height, width]")
        return tuple(value)
