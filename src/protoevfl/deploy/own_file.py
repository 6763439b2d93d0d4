"""This party's own file, as its party.toml names it: ids, labels, and the table of a run. Nothing here is sent."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.rows.feature_codes import FeatureSpec
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.files import count_rows, iter_batches, read_columns, require_columns, scan
from protoevfl.rows.ids import IdRules, Ids, collect
from protoevfl.rows.labels import encode_labels
from protoevfl.rows.table import PartyTable
from protoevfl.settings.config import BAD_IDS, FileConfig
from protoevfl.validation import NAMES, TEXT, Between, checked

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PartyFileConfig(FileConfig):
    """party.toml."""

    label: TEXT | None = None  # column of the label, active party only; rows without a label are predicted
    classes: NAMES = ()  # all classes, where some have no labelled row; else those that occur
    pool: Annotated[int, Between(0)] = 100_000  # most unaligned rows to train the extractor on
    casefold: bool = False  # true: "Ab1" and "AB1" are the same customer
    minimum: Annotated[int, Between(1)] = 50  # refuse to go on with fewer common rows
    on_bad_ids: Annotated[str, BAD_IDS] = "refuse"  # drop: leave out rows whose id is missing or repeated
    predict_file: Path | None = None  # new rows, for `protoevfl deploy predict`


@dataclass(frozen=True)
class OwnFile:
    """party.toml with its columns settled against the file's header."""

    path: Path
    id: tuple[str, ...]
    spec: FeatureSpec
    label: str | None
    classes: tuple[str, ...]
    rules: IdRules
    minimum: int
    on_bad: str
    pool: int
    predict: Path | None

    @classmethod
    def read(cls, facts: Mapping[str, Any], folder: Path) -> "OwnFile":
        config = checked(PartyFileConfig, facts, "party.toml")
        info = scan(folder / config.file)
        taken = {*config.id, *([config.label] if config.label else []), *config.exclude}
        require_columns(info, taken)
        features = config.features or tuple(n for n in info.names if n not in taken)
        require_columns(info, features)
        if not features or set(features) & taken:
            raise UserError("party.toml: features must be columns other than the id and the label, at least one")
        spec = FeatureSpec(features, config.categorical, config.numeric, config.max_categories)
        spec.check("party.toml")
        return cls(
            path=folder / config.file,
            id=config.id,
            spec=spec,
            label=config.label,
            classes=config.classes,
            rules=IdRules(config.casefold, len(config.id)),
            minimum=config.minimum,
            on_bad=config.on_bad_ids,
            pool=config.pool,
            predict=folder / config.predict_file if config.predict_file else None,
        )

    def ids(self, path: Path | None = None) -> Ids:
        """Normalised ids of the file (or of the file of new rows)."""
        path = path or self.path
        table = read_columns(path, list(self.id), text=list(self.id))
        return collect([table[c].to_pylist() for c in self.id], self.rules, path.name, self.on_bad)

    def labels(self) -> tuple[Rows, tuple[str, ...]]:
        """(rows,) class numbers, -1 where there is no label, and the class names."""
        if self.label is None:
            raise UserError("party.toml: the active party says which column is the label: label = ...")
        column = read_columns(self.path, [self.label])[self.label].combine_chunks()
        return encode_labels(column, f"{self.path.name} column '{self.label}'", self.classes)

    def labelled_ids(self, wanted: bool) -> Ids:
        """At the active party: the ids of the rows with (or without) a label."""
        return only(self.ids(), self.labels()[0] >= 0 if wanted else self.labels()[0] < 0)

    def table(self, name: str, train: Rows, query: Rows, new: bool, seed: int) -> PartyTable:
        """pool, aligned and query rows; with `new` the query rows are those of the file of new rows."""
        total = count_rows(self.path)
        keep = np.ones(total, np.bool_)
        if not new:
            keep[query] = False
        encoder = TableEncoder.fit(iter_batches(self.path, self.spec.features), self.spec, self.path.name, keep)
        rows = self._encode(encoder, self.path, total)
        asked = rows[torch.from_numpy(query)] if not new else self._new(encoder)[torch.from_numpy(query)]
        keep[train] = False
        own = np.flatnonzero(keep)
        if len(own) > self.pool:
            own = np.sort(np.random.default_rng([seed, 11]).choice(own, self.pool, replace=False))
        aligned = rows[torch.from_numpy(train)]
        pool = rows[torch.from_numpy(own)] if len(own) else aligned
        return PartyTable(name, pool, aligned, asked, encoder.spans)

    def _new(self, encoder: TableEncoder) -> Tensor:
        if self.predict is None:
            raise UserError("party.toml names no file of new rows: predict_file = ...")
        return self._encode(encoder, self.predict, count_rows(self.predict))

    @staticmethod
    def _encode(encoder: TableEncoder, path: Path, total: int) -> Tensor:
        return torch.from_numpy(encoder.transform(iter_batches(path, encoder.columns), total, path.name))


def only(ids: Ids, wanted: NDArray[np.bool_]) -> Ids:
    """The ids of the wanted rows (rows of the file,)."""
    kept = [i for i, row in enumerate(ids.rows) if wanted[row]]
    return replace(ids, values=[ids.values[i] for i in kept], rows=ids.rows[kept])
