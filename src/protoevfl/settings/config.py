"""`protoevfl.toml`: parties, label, method, privacy and alignment, checked before any data is read.

`load` checks every key and value; `resolve` then looks at the files' headers (never at their rows)
and says which columns are features. Paths are relative to the configuration file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar

from protoevfl.core.decisions import RULES, Rule
from protoevfl.errors import UserError, nearest
from protoevfl.methods import METHODS
from protoevfl.privacy.levels import LEVELS
from protoevfl.rows.date_formats import DAY_FIRST, MONTH_FIRST
from protoevfl.rows.encoders import ImageSpec
from protoevfl.rows.files import FileInfo, check_file, require_columns, scan
from protoevfl.rows.ids import IdRules
from protoevfl.rows.number_formats import DECIMALS
from protoevfl.rows.survey import FeatureSpec, check_kinds
from protoevfl.rules import NAMES, TEXT, Between, Decided, Listed, Matching, OneOf
from protoevfl.validation import checked, dotted, read_toml

VERSION = 1
FOLDER = Matching(
    r"^[A-Za-z][A-Za-z0-9_-]{0,39}$",
    "letters, digits, - or _, starting with a letter (it names a folder)",
)
BAD_IDS = OneOf(("refuse", "drop"))
DECISION = Annotated[str | Mapping[str, float], Decided(RULES)]


@dataclass(frozen=True, kw_only=True)
class FileConfig:
    """A party's file and which of its columns are used: in [[party]] and in party.toml."""

    file: Path  # .parquet, .csv, .csv.gz or .csv.zst; relative to this file
    # column or columns that make the id
    id: Annotated[tuple[str, ...], Listed("the name of a column", least=1)]
    # columns, or "all" but id, label, image
    features: Annotated[tuple[str, ...] | None, Listed(every=True)] = None
    exclude: NAMES = ()  # columns that are not used
    categorical: NAMES = ()  # whole numbers that are codes
    numeric: NAMES = ()  # texts that are numbers
    max_categories: Annotated[int, Between(2, 10_000)] = 32  # rarer values share one feature
    # the decimal mark of texts that could be read either way, such as 1,234
    decimal: Annotated[str, OneOf(DECIMALS)] | None = None
    # which comes first in dates that could be read either way, such as 01/02/2020
    dates: Annotated[str, OneOf((DAY_FIRST, MONTH_FIRST))] | None = None


@dataclass(frozen=True, kw_only=True)
class PartyConfig(FileConfig):
    """One [[party]]."""

    name: Annotated[str, FOLDER]  # of the party
    # a column of lists of pixels and its shape, in place of features
    image: ImageSpec | None = None

    def __post_init__(self) -> None:
        if self.name == "owner":
            raise UserError(
                "name must be another one than 'owner': a run keeps the label owner's part in that "
                "folder"
            )
        if self.features is not None and self.exclude:
            raise UserError(
                f"party '{self.name}': exclude goes with features = \"all\"; leave one of the two "
                "out"
            )
        if self.image and not _is_shape(self.image.shape):
            raise UserError(
                f"party '{self.name}' image: shape must be [height, width] or [channels, height, "
                f"width], not {list(self.image.shape)}"
            )


@dataclass(frozen=True)
class LabelConfig:
    party: TEXT  # the party that knows the answer
    column: TEXT  # text or whole numbers; empty where unknown
    classes: NAMES = ()  # all classes, where some have no labelled row; else those that occur
    # which class a prediction names: likeliest, balanced (classes as if equally frequent), or
    # {class = threshold}: that class from this probability on
    decision: DECISION = "likeliest"

    def rule(self, classes: Sequence[str]) -> Rule:
        """The decision with class numbers in the place of names."""
        if isinstance(self.decision, str):
            return self.decision
        for name in self.decision:
            if name not in classes:
                raise UserError(f"decision: '{name}' is not a class; {nearest(name, classes)}")
        return {classes.index(name): threshold for name, threshold in self.decision.items()}


@dataclass(frozen=True)
class MethodConfig:
    name: Annotated[str, OneOf(tuple(METHODS))] = "proto_evfl"  # see the methods below
    preset: TEXT = "default"  # named settings of the method
    # settings of the method, dotted names
    overrides: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PrivacyConfig:
    """None leaves the value to the preset."""

    # what the values below start from
    preset: Annotated[str, OneOf(("default", "one_way", "none"))] = "default"
    clip: Annotated[float, Between(1e-6, 1e6)] | None = None  # largest norm of an embedding
    # on what is sent about classes
    prototype_noise: Annotated[float, Between(0, 1e6)] | None = None
    # added by each party, as a multiple of clip
    embedding_noise: Annotated[float, Between(0, 1e6)] | None = None
    # randomised response on labels
    label_epsilon: Annotated[float, Between(1e-3, 1e3)] | None = None
    # a class with fewer rows is not shown to others
    minimum_class_rows: Annotated[int, Between(0)] | None = None
    # the run stops before it spends more
    epsilon_budget: Annotated[float, Between(1e-3, 1e6)] | None = None
    delta: Annotated[float, Between(1e-15, 0.1)] = 1e-5  # of the budget


@dataclass(frozen=True)
class AlignmentConfig:
    casefold: bool = False  # true: "Ab1" and "AB1" are the same customer
    minimum: Annotated[int, Between(1)] = 50  # refuse to go on with fewer common rows
    # drop: leave out rows whose id is missing or repeated
    on_bad_ids: Annotated[str, BAD_IDS] = "refuse"
    processes: Annotated[int, Between(0, 1024)] = 0  # 0: one per processor core


@dataclass(frozen=True, kw_only=True)
class Config:
    """protoevfl.toml. The file says `party` for each of the `parties`; `path` is the file
    itself."""

    __pydantic_config__: ClassVar[Any] = {
        "alias_generator": lambda name: {"parties": "party"}.get(name, name)
    }
    path: Path
    version: int = VERSION  # of this format
    output: Path = Path("run")  # folder for results; each party's part has its own folder in it
    seed: Annotated[int, Between(0)] = 0  # of everything random
    # share of the aligned rows kept aside to measure accuracy
    test: Annotated[float, Between(0, 0.9)] = 0.2
    # share of the others kept aside to compare settings with
    validation: Annotated[float, Between(0, 0.9)] = 0.0
    # most unaligned rows a party trains its extractor on
    pool: Annotated[int, Between(0)] = 100_000
    device: Annotated[str, OneOf(("auto", "cpu", "cuda"))] = "auto"  # where to train
    # how much is sent of a shared row; none: what the method's preset says ("open")
    columns: Annotated[str, OneOf(tuple(LEVELS))] | None = None
    label: LabelConfig
    parties: tuple[PartyConfig, ...]
    method: MethodConfig = MethodConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    alignment: AlignmentConfig = AlignmentConfig()

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


def load(path: Path | str, only: str = "") -> Config:
    """Read and check a configuration; UserError names the key, the nearest known one, and what is
    allowed.

    only   the party whose file must be there; all files, unless it is given
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path} does not exist; `protoevfl init` writes one to fill in")
    return _parse(read_toml(path), path, only)


def _parse(values: Mapping[str, Any], path: Path, only: str = "") -> Config:
    """The same from a dictionary; `path` is the file that relative paths start from."""
    if values.get("version", VERSION) != VERSION:
        raise UserError(
            f"{path.name} is of version {values['version']}; this program reads version {VERSION}"
        )
    config = checked(Config, values, path.name, path=str(path))
    _check_parties(config)
    folder = path.parent
    parties = tuple(replace(p, file=folder / p.file) for p in config.parties)
    for party in parties:
        if only in ("", party.name):
            check_file(party.file)
    overrides = dict(dotted(config.method.overrides))
    if config.columns is not None:
        _check_columns(config, overrides)
        overrides["columns"] = config.columns
    method = replace(config.method, overrides=overrides)
    return replace(config, output=folder / config.output, parties=parties, method=method)


def resolve(config: Config) -> dict[str, PartyFile]:
    """Check every named column against the headers and settle which columns are features."""
    label = config.label
    return {
        p.name: resolve_file(p, label.column if p.name == label.party else None)
        for p in config.parties
    }


def _check_parties(config: Config) -> None:
    """What must fit between the tables of the file."""
    where, names = config.path.name, [p.name for p in config.parties]
    if len(names) < 2:
        raise UserError(f"{where} needs two or more [[party]] tables")
    id_columns = len(config.parties[0].id)
    for i, party in enumerate(config.parties):
        if party.name in names[:i]:
            raise UserError(f"{where}: two parties are named '{party.name}'")
        if len(party.id) != id_columns:
            raise UserError(
                f"{where}: {party.name} has {len(party.id)} id columns, {names[0]} {id_columns}; "
                "ids must be made of the same columns at all parties"
            )
        check_kinds(f"{where} party '{party.name}'", party.categorical, party.numeric)
    if config.label.party not in names:
        raise UserError(
            f"{where} [label]: party = '{config.label.party}' is unknown; "
            f"{nearest(config.label.party, names)}"
        )


def _check_columns(config: Config, overrides: Mapping[str, Any]) -> None:
    """The level of columns is a setting of one method, given in one place."""
    if config.method.name != "proto_evfl":
        raise UserError(
            f"{config.path.name}: {config.method.name} has no levels of columns; leave `columns` "
            "out or use proto_evfl"
        )
    if overrides.get("columns", config.columns) != config.columns:
        raise UserError(
            f"{config.path.name}: columns = {config.columns!r} and [method.overrides] columns = "
            f"{overrides['columns']!r} differ; leave one of them out"
        )


def _is_shape(shape: tuple[int, ...]) -> bool:
    return len(shape) in (2, 3) and all(0 < size <= 4096 for size in shape)


def resolve_file(party: PartyConfig, label_column: str | None) -> PartyFile:
    """One party's columns against the header of its file; only the label party has a label
    column."""
    info = scan(party.file)
    label = {label_column} if label_column else set()
    image = {party.image.column} if party.image else set()
    require_columns(info, [*party.id, *label, *image, *(party.features or ()), *party.exclude])
    taken = {*party.id, *label, *image}
    for column in party.features or ():
        if column in taken:
            raise UserError(
                f"{party.name}: '{column}' is an id, label or image column and cannot be a feature "
                "as well"
            )
    features = party.features
    if features is None:
        features = (
            tuple(n for n in info.names if n not in taken and n not in party.exclude)
            if not image
            else ()
        )
    if image and features:
        raise UserError(
            f"{party.name} has an image column and other features; give each a [[party]] of its own"
        )
    if not image and not features:
        raise UserError(
            f"{party.name} has no feature columns left; its columns are "
            f"{', '.join(info.names[:20])}"
        )
    spec = FeatureSpec(
        features,
        party.categorical,
        party.numeric,
        party.max_categories,
        party.decimal,
        party.dates,
    )
    spec.check(party.name)
    return PartyFile(party, info, spec)
