"""This party's own files, as its party.toml names them: to learn from, and of new rows. Nothing
here is sent."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor

from protoevfl.artifacts.party import StoredParty
from protoevfl.errors import UserError
from protoevfl.pipeline.prepare import Places, read_ids
from protoevfl.rows.encoders import encode_rows
from protoevfl.rows.files import count_rows, require_columns, scan
from protoevfl.rows.ids import IdRules, Ids
from protoevfl.rules import NAMES, TEXT, Between
from protoevfl.settings.config import (
    BAD_IDS,
    DECISION,
    FileConfig,
    LabelConfig,
    PartyConfig,
    PartyFile,
    resolve_file,
)
from protoevfl.validation import checked


@dataclass(frozen=True, kw_only=True)
class PartyFileConfig(FileConfig):
    """party.toml."""

    # column of the label, active party only; rows without a label are predicted
    label: TEXT | None = None
    classes: NAMES = ()  # all classes, where some have no labelled row; else those that occur
    # active party: likeliest, balanced, or {class = threshold}; as [label] of protoevfl.toml has it
    decision: DECISION = "likeliest"
    # active party: share of the aligned rows kept aside to measure on
    test: Annotated[float, Between(0, 0.9)] = 0.2
    pool: Annotated[int, Between(0)] = 100_000  # most unaligned rows to train the extractor on
    casefold: bool = False  # true: "Ab1" and "AB1" are the same customer
    # refuse to go on with fewer rows in common with the other side
    minimum: Annotated[int, Between(1)] = 50
    # drop: leave out rows whose id is missing or repeated
    on_bad_ids: Annotated[str, BAD_IDS] = "refuse"
    predict_file: Path | None = None  # new rows, for `protoevfl deploy predict`
    # rows of today, for `protoevfl deploy serve`; left out: predict_file, or else file
    serve_file: Path | None = None


def read_config(facts: Mapping[str, Any]) -> PartyFileConfig:
    return checked(PartyFileConfig, facts, "party.toml")


@dataclass(frozen=True)
class OwnFile:
    """The file to train on, its columns settled against its header."""

    config: PartyFileConfig
    file: PartyFile

    @classmethod
    def read(cls, facts: Mapping[str, Any], name: str, folder: Path) -> "OwnFile":
        """What party.toml says of the file of the party `name`, whose kit is `folder`."""
        config = read_config(facts)
        of_file = {f.name: getattr(config, f.name) for f in fields(FileConfig)}
        party = PartyConfig(name=name, **{**of_file, "file": folder / config.file})
        return cls(config, resolve_file(party, config.label))

    @property
    def rules(self) -> IdRules:
        return IdRules(self.config.casefold, len(self.config.id))

    @property
    def minimum(self) -> int:
        return self.config.minimum

    @property
    def label(self) -> LabelConfig:
        """At the active party: where the labels are."""
        if self.config.label is None:
            raise UserError(
                "party.toml: the active party says which column is the label: label = ..."
            )
        config = self.config
        assert config.label is not None
        return LabelConfig(self.file.config.name, config.label, config.classes, config.decision)

    def ids(self) -> Ids:
        return read_ids(self.file.info.path, self.config.id, self.rules, self.config.on_bad_ids)


@dataclass(frozen=True)
class NewRows:
    """Rows to be predicted, read with what training left behind: the file it learnt from is not
    needed."""

    path: Path
    party: StoredParty
    minimum: int = 0  # one company may have none of them

    @classmethod
    def read(
        cls, facts: Mapping[str, Any], folder: Path, party: StoredParty, serves: bool = False
    ) -> "NewRows":
        """The rows to be predicted, or (`serves`) those that may be asked for one by one."""
        config = read_config(facts)
        if config.predict_file is None and not serves:
            raise UserError("party.toml names no file of new rows: predict_file = ...")
        named = config.serve_file if serves else None
        path = folder / (named or config.predict_file or config.file)
        require_columns(scan(path), [*party.id_columns, *party.encoder.columns])
        return cls(path, party)

    def ids(self) -> Ids:
        return read_ids(
            self.path, self.party.id_columns, self.party.id_rules, self.party.on_bad_ids
        )

    def encoded(self, rows: Places) -> Tensor:
        """These rows of the file, in this order, as the trained party takes them."""
        return encode_rows(self.party.encoder, self.path, rows, count_rows(self.path))
