"""From files to what training needs: ids, alignment, labels, test part, and each party's table.

The common rows with a label are cut, class by class, into training, validation and test rows by a keyed hash of
the id, so that the same seed keeps the same people aside whatever the order of the files. Common rows without a label
join the parties' unaligned rows. A party's encoder is fitted on its rows outside test and validation.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.observer import SILENT, Observer
from protoevfl.rows.align import plain_intersection
from protoevfl.rows.alignment import Alignment, same_order, verify
from protoevfl.rows.encoders import Encoder, encode_rows, fit_encoder, row_shape
from protoevfl.rows.files import read_columns
from protoevfl.rows.ids import IdRules, Ids, collect
from protoevfl.rows.labels import encode_labels
from protoevfl.rows.table import PartyTable
from protoevfl.settings.config import Config, PartyFile, resolve
from protoevfl.settings.method_choice import kind_of

CELLS = 1 << 28  # most numbers of a party's unaligned rows that are held: 1 GiB
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Parts:
    """Places in the common order."""

    train: Places
    validation: Places
    test: Places
    unlabelled: Places

    @property
    def kept_aside(self) -> Places:
        return np.concatenate([self.test, self.validation])


@dataclass(frozen=True)
class OneParty:
    """A party's own part; query rows are test rows, then validation rows."""

    name: str
    file: PartyFile
    table: PartyTable
    encoder: Encoder
    alignment: Alignment
    facts: dict[str, Any]


@dataclass(frozen=True)
class Prepared:
    """Everything before training; the first party holds the labels."""

    parties: tuple[OneParty, ...]
    classes: tuple[str, ...]
    labels: Tensor  # (N_a,) of the training rows
    test_labels: Tensor
    validation_labels: Tensor
    notes: list[str] = field(default_factory=list)

    @property
    def unseen(self) -> tuple[int, ...]:
        """Classes that the configuration lists and no training row has."""
        counts = torch.bincount(self.labels, minlength=len(self.classes))
        return tuple((counts == 0).nonzero()[:, 0].tolist())


def party_order(config: Config) -> list[str]:
    """The label party first, the others as they are listed."""
    names = [p.name for p in config.parties]
    return [config.label.party, *(name for name in names if name != config.label.party)]


def kind_of_run(config: Config) -> str:
    """ "table", "images" or "mixed"."""
    return kind_of("images" if p.image else "table" for p in config.parties)


def read_ids(file: PartyFile, rules: IdRules, on_bad: str) -> Ids:
    """A party's normalised ids."""
    columns = list(file.config.id)
    table = read_columns(file.info.path, columns, text=columns)
    return collect([table[c].to_pylist() for c in columns], rules, file.info.path.name, on_bad)


def read_labels(config: Config, file: PartyFile) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """(rows,) class numbers of the label party's file, -1 without a label, and the class names."""
    column = config.label.column
    found = read_columns(file.info.path, [column])[column].combine_chunks()
    return encode_labels(found, f"{file.info.path.name} column '{column}'", config.label.classes)


def common_rows(config: Config, ids: Mapping[str, Ids]) -> dict[str, Alignment]:
    """The alignment that `protoevfl align` left, checked against the files; else the plain intersection."""
    folder = alignment_folder(config)
    if not folder.is_dir():
        return plain_intersection(ids, config.alignment.minimum)
    found = {name: Alignment.load(folder / name) for name in ids}
    same_order(found.values())
    for name, alignment in found.items():
        if alignment.rules != config.id_rules:
            raise UserError(f"the alignment in {folder} was made with other id rules; run align again")
        verify(alignment, ids[name])
    return found


def alignment_folder(config: Config) -> Any:
    """Where `protoevfl align` puts its result: beside the run directory."""
    return config.output.with_name(f"{config.output.name}-alignment")


def split_rows(labels: NDArray[np.int64], ids: list[str], seed: int, test: float, validation: float) -> Parts:
    """Cut common rows with labels (n,), -1 for none, class by class; shares are rounded down.

    The rows of a part come in an order of their ids, so that training does not depend on the common order (a secret
    one after `protoevfl align`, new each time).
    """
    keys = [hashlib.sha256(f"{seed}\0{value}".encode()).digest() for value in ids]
    order = np.array(sorted(range(len(ids)), key=keys.__getitem__), np.int64)
    part = np.full(len(ids), -1)  # of each row: 0 test, 1 validation, 2 train
    for z in range(int(labels.max(initial=-1)) + 1):
        mine = order[labels[order] == z]
        first = int(len(mine) * test)
        second = first + int((len(mine) - first) * validation)
        for number, some in enumerate(np.split(mine, [first, second])):
            part[some] = number
    tested, validated, trained = (order[part[order] == number] for number in range(3))
    return Parts(trained, validated, tested, np.flatnonzero(labels < 0))


def prepare(config: Config, observer: Observer = SILENT) -> Prepared:
    """Read the files of all parties in this process (simulation)."""
    files, names = resolve(config), party_order(config)
    ids = {}
    for i, name in enumerate(names):
        observer.progress("reading ids", i, len(names))
        ids[name] = read_ids(files[name], config.id_rules, config.alignment.on_bad_ids)
    aligned = common_rows(config, ids)
    active = names[0]
    every, classes = read_labels(config, files[active])
    labels = every[aligned[active].rows]  # (n,) in the common order
    at = dict(zip(ids[active].rows.tolist(), ids[active].values, strict=True))
    parts = split_rows(
        labels, [at[r] for r in aligned[active].rows.tolist()], config.seed, config.test, config.validation
    )
    notes = check_labels(labels, parts, classes, config)
    parties = []
    for i, name in enumerate(names):
        observer.progress("encoding columns", i, len(names))
        total = ids[name].counts.input
        parties.append(prepare_party(files[name], aligned[name], parts, total, config.pool, config.seed, notes))
    train, test, validation = (torch.from_numpy(labels[p]) for p in (parts.train, parts.test, parts.validation))
    return Prepared(tuple(parties), classes, train, test, validation, notes)


def check_labels(labels: NDArray[np.int64], parts: Parts, classes: tuple[str, ...], config: Config) -> list[str]:
    """Refuse common rows without labels or with one class; notes about partly present labels and absent classes."""
    where, notes = f"the label column '{config.label.column}'", []
    if not len(parts.train):
        raise UserError(f"none of the {len(labels)} common rows has a label in {where}; at least some must")
    if len(parts.unlabelled):
        notes.append(
            f"{len(parts.unlabelled)} of {len(labels)} common rows have no label in {where}: used as unlabelled rows"
        )
    counts = np.bincount(labels[parts.train], minlength=len(classes))
    if (counts > 0).sum() < 2:
        only = classes[int(counts.argmax())]
        raise UserError(f"all labelled common rows are of the class '{only}'; there is nothing to tell apart")
    missing = [classes[z] for z in np.flatnonzero(counts == 0)]
    if missing and not config.label.classes:
        raise UserError(
            f"no common row has the label {', '.join(missing)}; list all classes under [label] classes = [...] "
            "to look for it among the unlabelled rows, or remove those rows"
        )
    if missing:
        notes.append(f"no common row has the label {', '.join(missing)}: looked for among the unlabelled rows")
    return notes


def prepare_party(
    file: PartyFile, alignment: Alignment, parts: Parts, total: int, pool: int, seed: int, notes: list[str]
) -> OneParty:
    """One party's encoder and table; reads that party's file only."""
    name, aside = file.config.name, alignment.rows[parts.kept_aside]
    free = np.ones(total, np.bool_)
    free[aside] = False
    encoder = fit_encoder(file.info.path, file.spec, file.config.image, free)
    free[alignment.rows[parts.train]] = False
    own = np.flatnonzero(free)  # unaligned rows, and common ones without a label
    most = min(pool, CELLS // max(1, int(np.prod(row_shape(encoder)))))
    if len(own) > most:
        notes.append(f"{name}: {most:,} of its {len(own):,} unaligned rows are used, drawn at random")
        own = np.sort(np.random.default_rng([seed, 11]).choice(own, most, replace=False))
    aligned = alignment.rows[parts.train]
    rows = encode_rows(encoder, file.info.path, np.concatenate([own, aligned, aside]), total)
    pooled, paired, query = torch.split(rows, [len(own), len(aligned), len(aside)])
    if not len(own):
        notes.append(f"{name} has no unaligned rows: its extractor learns from the common rows alone")
        pooled = paired
    dropped = dict(getattr(encoder, "dropped", {}))
    notes += [f"{name}: column '{column}' is not used: {why}" for column, why in list(dropped.items())[:5]]
    facts = {"rows": total, "aligned": len(alignment.rows), "train": len(aligned), "kept_aside": len(aside),
             "pool": len(own), "columns": encoder.columns[:1000], "features": list(row_shape(encoder)),
             "dropped": dict(list(dropped.items())[:1000])}  # fmt: skip
    return OneParty(name, file, PartyTable(name, pooled, paired, query, encoder.spans), encoder, alignment, facts)
