"""`protoevfl.toml`: parties, label, method, privacy and alignment, checked before any data is read.

`load` checks every key and value; `resolve` then looks at the files' headers (never at their rows) and says which
columns are features. Paths are relative to the configuration file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from protoevfl.errors import UserError
from protoevfl.methods import METHODS
from protoevfl.rows.encoders import ImageSpec
from protoevfl.rows.feature_codes import FeatureSpec, check_kinds
from protoevfl.rows.files import FileInfo, check_file, require_columns, scan
from protoevfl.rows.ids import IdRules
from protoevfl.toml_section import Section, read_toml

VERSION = 1
PRIVACY_PRESETS = ("default", "one_way", "none")


@dataclass(frozen=True)
class PartyConfig:
    name: str
    file: Path
    id: tuple[str, ...]
    features: tuple[str, ...] | None  # None: all but ids, label, image and `exclude`
    exclude: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    max_categories: int = 32
    image: ImageSpec | None = None


@dataclass(frozen=True)
class LabelConfig:
    party: str
    column: str
    classes: tuple[str, ...] = ()  # all classes, where some have no labelled row; () means those that occur


@dataclass(frozen=True)
class MethodConfig:
    name: str
    preset: str
    overrides: Mapping[str, Any]  # dotted names, as `presets.build` takes them


@dataclass(frozen=True)
class PrivacyConfig:
    """None leaves the value to the preset."""

    preset: str
    clip: float | None
    prototype_noise: float | None
    embedding_noise: float | None
    label_epsilon: float | None
    minimum_class_rows: int | None
    epsilon_budget: float | None
    delta: float


@dataclass(frozen=True)
class AlignmentConfig:
    casefold: bool
    minimum: int
    on_bad_ids: str  # "refuse" or "drop"
    processes: int


@dataclass(frozen=True)
class Config:
    path: Path
    output: Path
    seed: int
    test: float
    validation: float
    pool: int
    device: str
    label: LabelConfig
    parties: tuple[PartyConfig, ...]
    method: MethodConfig
    privacy: PrivacyConfig
    alignment: AlignmentConfig

    def party(self, name: str) -> PartyConfig:
        return next(p for p in self.parties if p.name == name)

    @property
    def id_rules(self) -> IdRules:
        """What all parties must share before they align."""
        return IdRules(self.alignment.casefold, len(self.parties[0].id))


@dataclass(frozen=True)
class PartyFile:
    """A party with its columns resolved against the header of its file."""

    config: PartyConfig
    info: FileInfo
    spec: FeatureSpec  # no features for a party of images


def template() -> str:
    """The commented file that `protoevfl init` writes."""
    return resources.files(__package__).joinpath("template.toml").read_text(encoding="utf-8")


def load(path: Path | str) -> Config:
    """Read and check a configuration; UserError names the key, the nearest known one, and what is allowed."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path} does not exist; `protoevfl init` writes one to fill in")
    return parse(read_toml(path), path)


def parse(values: Mapping[str, Any], path: Path) -> Config:
    """The same from a dictionary; `path` is the file that relative paths start from."""
    top = Section(values, path.name, ("version", "output", "seed", "test", "validation", "pool", "device",
                                      "label", "party", "method", "privacy", "alignment"))  # fmt: skip
    if top.whole("version", VERSION, 1) != VERSION:
        raise UserError(f"{path.name} is of version {values['version']}; this program reads version {VERSION}")
    parties = _parties(top.raw("party"), path)
    return Config(
        path=path,
        output=path.parent / top.text("output", "run"),
        seed=top.whole("seed", 0, 0),
        test=top.real("test", 0.2, 0.0, 0.9),
        validation=top.real("validation", 0.0, 0.0, 0.9),
        pool=top.whole("pool", 100_000, 0),
        device=top.choice("device", ("auto", "cpu", "cuda"), "auto"),
        label=_label(top.raw("label"), path, parties),
        parties=parties,
        method=_method(top.raw("method", {}), path),
        privacy=_privacy(top.raw("privacy", {}), path),
        alignment=_alignment(top.raw("alignment", {}), path),
    )


def resolve(config: Config) -> dict[str, PartyFile]:
    """Check every named column against the headers and settle which columns are features."""
    return {party.name: _resolve(config, party) for party in config.parties}


def _parties(values: Any, path: Path) -> tuple[PartyConfig, ...]:
    if not isinstance(values, list) or len(values) < 2:
        raise UserError(f"{path.name} needs two or more [[party]] tables")
    parties = tuple(_party(value, f"{path.name} [[party]] {i}", path) for i, value in enumerate(values, 1))
    for i, party in enumerate(parties):
        if party.name in [p.name for p in parties[:i]]:
            raise UserError(f"{path.name}: two parties are named '{party.name}'")
        if len(party.id) != len(parties[0].id):
            raise UserError(
                f"{path.name}: {party.name} has {len(party.id)} id columns, {parties[0].name} {len(parties[0].id)}; "
                "ids must be made of the same columns at all parties"
            )
    return parties


def _party(values: Any, where: str, path: Path) -> PartyConfig:
    section = Section(values, where, ("name", "file", "id", "features", "exclude", "categorical", "numeric",
                                      "max_categories", "image"))  # fmt: skip
    name = section.text("name")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", name):
        raise section.wrong("name", "letters, digits, - or _, starting with a letter (it names a folder)")
    if name == "owner":
        raise section.wrong("name", "another name (a run keeps the label owner's part in a folder 'owner')")
    section.where = f"{path.name} party '{name}'"
    file = path.parent / section.text("file")
    check_file(file)
    every = section.raw("features", "all") == "all"
    if not every and section.has("exclude"):
        raise UserError(f'{section.where}: exclude goes with features = "all"; leave one of the two out')
    party = PartyConfig(
        name=name,
        file=file,
        id=section.names("id"),
        features=None if every else section.names("features"),
        exclude=section.names("exclude", ()),
        categorical=section.names("categorical", ()),
        numeric=section.names("numeric", ()),
        max_categories=section.whole("max_categories", 32, 2, 10_000),
        image=_image(section.raw("image"), section.where) if section.has("image") else None,
    )
    if not party.id:
        raise section.wrong("id", "the name of a column")
    check_kinds(section.where, party.categorical, party.numeric)
    return party


def _image(values: Any, where: str) -> ImageSpec:
    section = Section(values, f"{where} image", ("column", "shape"))
    return ImageSpec(section.text("column"), section.sizes("shape"))


def _label(values: Any, path: Path, parties: tuple[PartyConfig, ...]) -> LabelConfig:
    section = Section(values, f"{path.name} [label]", ("party", "column", "classes"))
    party = section.choice("party", [p.name for p in parties])
    return LabelConfig(party, section.text("column"), section.names("classes", ()))


def _method(values: Any, path: Path) -> MethodConfig:
    section = Section(values, f"{path.name} [method]", ("name", "preset", "overrides"))
    overrides = section.raw("overrides", {})
    if not isinstance(overrides, Mapping):
        raise section.wrong("overrides", "a table of the method's fields")
    name = section.choice("name", METHODS, "proto_evfl")
    return MethodConfig(name, section.text("preset", "default"), dict(_dotted(overrides)))


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _privacy(values: Any, path: Path) -> PrivacyConfig:
    section = Section(values, f"{path.name} [privacy]", PrivacyConfig.__dataclass_fields__)
    rows = section.whole("minimum_class_rows", 0, 0) if section.has("minimum_class_rows") else None
    return PrivacyConfig(
        preset=section.choice("preset", PRIVACY_PRESETS, "default"),
        clip=section.real("clip", None, 1e-6, 1e6),
        prototype_noise=section.real("prototype_noise", None, 0.0, 1e6),
        embedding_noise=section.real("embedding_noise", None, 0.0, 1e6),
        label_epsilon=section.real("label_epsilon", None, 1e-3, 1e3),
        minimum_class_rows=rows,
        epsilon_budget=section.real("epsilon_budget", None, 1e-3, 1e6),
        delta=section.real("delta", 1e-5, 1e-15, 0.1),
    )


def _alignment(values: Any, path: Path) -> AlignmentConfig:
    section = Section(values, f"{path.name} [alignment]", AlignmentConfig.__dataclass_fields__)
    return AlignmentConfig(
        casefold=section.flag("casefold", False),
        minimum=section.whole("minimum", 50, 1),
        on_bad_ids=section.choice("on_bad_ids", ("refuse", "drop"), "refuse"),
        processes=section.whole("processes", 0, 0, 1024),
    )


def _resolve(config: Config, party: PartyConfig) -> PartyFile:
    info = scan(party.file)
    label = {config.label.column} if party.name == config.label.party else set()
    image = {party.image.column} if party.image else set()
    require_columns(info, [*party.id, *label, *image, *(party.features or ()), *party.exclude])
    taken = {*party.id, *label, *image}
    for column in party.features or ():
        if column in taken:
            raise UserError(f"{party.name}: '{column}' is an id, label or image column and cannot be a feature as well")
    features = party.features
    if features is None:
        features = tuple(n for n in info.names if n not in taken and n not in party.exclude) if not image else ()
    if image and features:
        raise UserError(f"{party.name} has an image column and other features; give each a [[party]] of its own")
    if not image and not features:
        raise UserError(f"{party.name} has no feature columns left; its columns are {', '.join(info.names[:20])}")
    spec = FeatureSpec(features, party.categorical, party.numeric, party.max_categories)
    spec.check(party.name)
    return PartyFile(party, info, spec)
