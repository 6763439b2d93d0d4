"""docs/reference/: the pages of settings, made of the dataclasses that check what users give.

python -m protoevfl.report.settings_page docs/reference
"""

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from protoevfl.deploy.own_file import PartyFileConfig
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.probe import Probe
from protoevfl.deploy.provision import ProjectFile
from protoevfl.deploy.spec import JobSpec
from protoevfl.methods import METHODS, method_class
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.rules import annotations, parts, wanted
from protoevfl.settings.config import Config
from protoevfl.settings.presets import presets

FILES: dict[str, tuple[type, str]] = {
    "protoevfl.toml": (Config, "Training on your own files; `protoevfl init` writes one."),
    "project.toml": (
        ProjectFile,
        "A project between companies; `protoevfl deploy init` writes one.",
    ),
    "party.toml": (PartyFileConfig, "In a party's kit: its own data."),
    "policy.toml": (Policy, "In a party's kit: which jobs it accepts."),
    "job.toml": (JobSpec, "What the active party proposes to the others."),
}
GIVEN = ("path",)  # filled in by the program
MADE = "This page is made of the code: `python -m protoevfl.report.settings_page docs/reference`."
FILES_HEAD = f"""\
# Settings

Every key of every file. A dash for the default: the key must be there. {MADE}
"""
OURS = "proto_evfl"
METHODS_HEAD = f"""\
For `--set`, `[method.overrides]` of protoevfl.toml, `[settings]` of job.toml and `overrides` of the scikit-learn class,
with dotted names (`head.epochs`). The defaults are those without a preset. {MADE}
"""
Row = tuple[str, str, str, str]  # key, what is allowed, default, meaning


def pages() -> dict[str, str]:
    """{file name: text}."""
    files = [FILES_HEAD]
    for name, (cls, meaning) in FILES.items():
        files += [f"## {name}\n", f"{meaning}\n", *_table(_rows(cls))]
    files += [
        "## privacy\n",
        "`privacy.*` of the methods' settings, and `[privacy]` of job.toml.\n",
    ]
    files += _table(_rows(PrivacySettings, groups=False))
    files += [
        "## probe\n",
        "`[settings]` of a job that tries the connection.\n",
        *_table(_rows(Probe)),
    ]
    others = [name for name in METHODS if name != OURS]
    texts = {
        "settings.md": files,
        "method-settings.md": _methods([OURS], "Settings of Proto-EVFL"),
        "baseline-settings.md": _methods(others, "Settings of the other methods"),
    }
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in texts.items()}


def _methods(names: Iterable[str], title: str) -> list[str]:
    """A section per method, then one per group of settings that a table refers to."""
    titles = {method_class(name): name for name in names}
    lines = [f"# {title}\n\n{METHODS_HEAD}"]
    waiting: list[type] = list(titles)
    for cls in waiting:  # grows by the classes that a table refers to
        lines += _section(cls, titles, waiting)
    return lines


def _section(cls: type, titles: dict[type, str], waiting: list[type]) -> list[str]:
    """What a class has beyond its base; groups and bases get a section of their own."""
    title = titles.get(cls, cls.__name__)
    lines = [f"## {title}\n"]
    if cls in titles and len(presets(title)) > 1:
        lines.append(f"Presets: {', '.join(presets(title))}.\n")
    rows = list(_rows(cls, groups=False))
    groups = {key: parts(hint)[0] for key, hint in annotations(cls).items() if _is_group(hint)}
    base = next((b for b in cls.__mro__[1:] if dataclasses.is_dataclass(b)), None)
    if base is not None:
        inherited = annotations(base)
        groups = {key: group for key, group in groups.items() if inherited.get(key) is not group}
        rows = [row for row in rows if row not in list(_rows(base, groups=False))]
        lines.append(
            "All of "
            f"[{base.__name__}](#{base.__name__.lower()}){', and:' if rows or groups else '.'}\n"
        )
    for key, group in groups.items():
        rows.append(
            (f"{key}.*", "a group", "", f"see [{group.__name__}](#{group.__name__.lower()})")
        )
    waiting += [
        cls_ for cls_ in (*groups.values(), base) if cls_ is not None and cls_ not in waiting
    ]
    return lines + _table(rows)


def _rows(cls: type, prefix: str = "", groups: bool = True) -> Iterator[Row]:
    """The keys of a file's dataclass and of those in it; without `groups` the plain settings of a
    method."""
    meanings = _meanings(cls)
    for field, (key, hint) in zip(dataclasses.fields(cls), annotations(cls).items(), strict=True):
        inner = _inner(hint)
        if inner is not None:
            yield from _rows(inner[0], f"{prefix}{key}{inner[1]}.") if groups else ()
        elif key not in GIVEN:
            yield (
                f"{prefix}{key}",
                wanted(hint, "" if groups else " or none"),
                _text(field),
                meanings.get(field.name, ""),
            )


def _is_group(hint: Any) -> bool:
    return dataclasses.is_dataclass(parts(hint)[0])


def _inner(hint: Any) -> tuple[Any, str] | None:
    """The dataclass of a table and how its keys are reached: directly, in each of a list, or by a
    name."""
    bare, _ = parts(hint)
    if dataclasses.is_dataclass(bare):
        return bare, ""
    rows = [argument for argument in typing.get_args(bare) if dataclasses.is_dataclass(argument)]
    return (rows[0], "[]" if typing.get_origin(bare) is tuple else ".NAME") if rows else None


def _meanings(cls: type) -> dict[str, str]:
    """{field: the comment above or beside it}, with those of the base classes."""
    meanings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            above: list[str] = []
            for line in inspect.getsource(base).splitlines():
                if comment := re.match(r"    # (.+)$", line):
                    above.append(comment[1])
                    continue
                field = re.match(r"    (\w+): .*?(?:  # (.+))?$", line)
                if field and (above or field[2]):
                    meanings[field[1]] = " ".join([*above, *filter(None, [field[2]])])
                above = []
    return meanings


def _text(field: Any) -> str:
    """The default of a field."""
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is dataclasses.MISSING:
        return "-"
    if value is None or (not value and isinstance(value, dict | tuple | str)):
        return "none"
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{text.lower() if isinstance(value, bool) else text}`"


def _table(rows: Iterable[Row]) -> list[str]:
    lines = [
        f"| `{key}` | {kind} | {default} | {meaning} |" for key, kind, default, meaning in rows
    ]
    return (
        ["| name | allowed | default | meaning |", "|---|---|---|---|", *lines, ""] if lines else []
    )


if __name__ == "__main__":
    for name, text in pages().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
