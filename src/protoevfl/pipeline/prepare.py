"""From files to what training needs: ids, who shares which row, labels, test part, and each party's
table.

Every row of the active party counts: rows shared with all parties, with some of them, with nobody;
labelled or not. The labelled rows common to all are cut, class by class, into training, validation
and test rows by a keyed hash of the id, so that the same seed keeps the same people aside whatever
the order of the files. Labelled rows shared with some of the others train too; all other rows are a
party's own (its pool), and the active party's own model learns from those that have a label. A
party's encoder is fitted on its rows outside test and validation.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.errors import UserError, listed
from protoevfl.rows.alignment import Alignment
from protoevfl.rows.encoders import Encoder, column_lines, encode_rows, fit_encoder, row_shape
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.files import read_columns
from protoevfl.rows.ids import IdRules, Ids, collect
from protoevfl.rows.labels import encode_labels
from protoevfl.rows.table import Further, OwnRows, PartyTable
from protoevfl.settings.config import LabelConfig, PartyFile

CELLS = 1 << 28  # most numbers of a party's unaligned rows that are held: 1 GiB
Places = NDArray[np.int64]
NOTHING: Places = np.zeros(0, np.int64)


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
    """A party's own part; query rows are test rows, then validation rows, then rows to be
    predicted."""

    name: str
    file: PartyFile
    table: PartyTable
    encoder: Encoder
    alignment: Alignment | None  # with the active party, which itself has one per pair
    facts: dict[str, Any]
    pool_rows: Places  # rows of the file that are its pool


@dataclass(frozen=True)
class Prepared:
    """Everything before training; the first party holds the labels."""

    parties: tuple[OneParty, ...]
    classes: tuple[str, ...]
    labels: Tensor  # (N_a,) of the training rows shared by all
    test_labels: Tensor
    validation_labels: Tensor
    # every label of the active party, where it has more than the shared ones
    own: OwnRows | None = None
    further: Further | None = None  # labelled rows shared with some of the others
    notes: list[str] = field(default_factory=list)

    @property
    def known_labels(self) -> Tensor:
        """All labels that training may use."""
        return self.labels if self.own is None else self.own.labels[self.own.labels >= 0]

    @property
    def unseen(self) -> tuple[int, ...]:
        """Classes that the configuration lists and no label shows."""
        return absent_classes(self.known_labels, len(self.classes))


@dataclass(frozen=True)
class Sharing:
    """Who has which row of the active party's file."""

    place: Places  # (others, rows): the row of the other party's file, -1 where it has none
    alignments: Mapping[str, Alignment]  # each other party's side of its pair

    @property
    def common(self) -> Places:
        """Rows that all parties have."""
        return np.flatnonzero((self.place >= 0).all(0))

    @property
    def partly(self) -> Places:
        """Rows that some of the others have, not all."""
        has = self.place >= 0
        return np.flatnonzero(has.any(0) & ~has.all(0))


def absent_classes(known: Tensor, classes: int) -> tuple[int, ...]:
    """Classes that none of the known labels (n,) shows."""
    counts = torch.bincount(known.cpu(), minlength=classes)
    return tuple((counts == 0).nonzero()[:, 0].tolist())


def read_ids(path: Path, id_columns: Sequence[str], rules: IdRules, on_bad: str) -> Ids:
    """The normalised ids of a party's file."""
    table = read_columns(path, list(id_columns), text=list(id_columns))
    return collect([table[c].to_pylist() for c in id_columns], rules, path.name, on_bad)


def read_labels(label: LabelConfig, file: PartyFile) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """(rows,) class numbers of the label party's file, -1 without a label, and the class names."""
    column = read_columns(file.info.path, [label.column])[label.column].combine_chunks()
    return encode_labels(column, f"{file.info.path.name} column '{label.column}'", label.classes)


def split_rows(
    labels: NDArray[np.int64], ids: list[str], seed: int, test: float, validation: float
) -> Parts:
    """Cut common rows with labels (n,), -1 for none, class by class; shares are rounded down.

    The rows of a part come in an order of their ids, so that training does not depend on the common
    order (a secret one after `protoevfl align`, new each time).
    """
    keys = [hashlib.sha256(f"{seed}\0{value}".encode()).digest() for value in ids]
    order = np.array(sorted(range(len(ids)), key=keys.__getitem__), np.int64)
    part = np.full(len(ids), -1)  # of each row: 0 test, 1 validation, 2 train
    for z in range(int(labels.max(initial=-1)) + 1):
        of_class = order[labels[order] == z]
        first = int(len(of_class) * test)
        second = first + int((len(of_class) - first) * validation)
        for number, rows in enumerate(np.split(of_class, [first, second])):
            part[rows] = number
    tested, validated, trained = (order[part[order] == number] for number in range(3))
    return Parts(trained, validated, tested, np.flatnonzero(labels < 0))


def assemble(
    parties: Sequence[OneParty],
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
    rows: "ActiveRows",
    shared: Sharing,
    notes: list[str],
) -> Prepared:
    """Labels (rows of the active party's file,) and what each party prepared; the active one is
    enough."""
    own_rows, further = _every_label(parties[0], labels, rows, shared)
    if own_rows is not None:
        known = int((own_rows.labels[own_rows.shared_rows :] >= 0).sum())
        notes.append(
            f"{parties[0].name}: its own model also learns from {known:,} labels of rows nobody "
            "shares"
        )
    return Prepared(
        tuple(parties),
        classes,
        labels=torch.from_numpy(labels[rows.train]),
        test_labels=torch.from_numpy(labels[rows.test]),
        validation_labels=torch.from_numpy(labels[rows.validation]),
        own=own_rows,
        further=further,
        notes=notes,
    )


@dataclass(frozen=True)
class ActiveRows:
    """Rows of the active party's file by their use."""

    train: Places  # shared by all, labelled
    validation: Places
    test: Places
    further: Places  # shared by some, labelled
    asked: Places  # to be predicted: not labelled

    @property
    def kept_aside(self) -> Places:
        return np.concatenate([self.test, self.validation])


def cut_rows(
    ids: Ids,
    labels: NDArray[np.int64],
    shared: Sharing,
    seed: int,
    test: float,
    validation: float = 0.0,
) -> ActiveRows:
    """Which labelled shared rows train and which are kept aside; those shared by some all train.

    test         share of the labelled rows common to all that is kept aside to measure on
    validation   share of the others kept aside to compare settings with
    """
    spelt = dict(zip(ids.rows.tolist(), ids.values, strict=True))

    def parts_of(rows: Places, test: float, validation: float) -> list[Places]:
        values = [spelt[row] for row in rows.tolist()]
        parts = split_rows(labels[rows], values, seed, test, validation)
        return [rows[part] for part in (parts.train, parts.validation, parts.test)]

    train, validated, tested = parts_of(shared.common, test, validation)
    further = parts_of(shared.partly, 0.0, 0.0)[0]
    return ActiveRows(train, validated, tested, further, ids.rows[labels[ids.rows] < 0])


@dataclass(frozen=True)
class PartyRows:
    """Rows of one party's file by their use, in the order that all parties share."""

    aligned: Places
    kept_aside: Places
    further: Places
    asked: Places  # to be predicted; they stay among the party's own rows


def rows_of(rows: ActiveRows, shared: Sharing, party: int, predict: bool = False) -> PartyRows:
    """The same rows in a party's own file; party 0 is the active one. `predict` names those without
    a label too."""
    to_predict = rows.asked if predict else NOTHING
    if not party:
        return PartyRows(rows.train, rows.kept_aside, rows.further, to_predict)
    place = shared.place[party - 1]
    further = place[rows.further]
    to_predict = place[to_predict]
    return PartyRows(
        place[rows.train],
        place[rows.kept_aside],
        further[further >= 0],
        to_predict[to_predict >= 0],
    )


def _every_label(
    active: OneParty, labels: NDArray[np.int64], rows: ActiveRows, shared: Sharing
) -> tuple[OwnRows | None, Further | None]:
    """What the active party's own model learns from, where it has labels beyond those of the rows
    shared by all."""
    table = active.table
    pool_labels = labels[active.pool_rows]
    if not len(rows.further) and not (pool_labels >= 0).any():
        return None, None
    assert table.further is not None
    # without own rows the table repeats the aligned ones as its pool
    has_pool = len(active.pool_rows) > 0
    parts = [table.aligned, table.further, *([table.pool] if has_pool else [])]
    known = np.concatenate([labels[rows.train], labels[rows.further], pool_labels])
    own = OwnRows(
        torch.cat(parts),
        torch.from_numpy(known),
        table.query,
        len(rows.train) + len(rows.further),
    )
    if not len(rows.further):
        return own, None
    has = np.concatenate(
        [np.ones((1, len(rows.further)), np.bool_), shared.place[:, rows.further] >= 0]
    )
    return own, Further(torch.from_numpy(labels[rows.further]), torch.from_numpy(has))


def check_labels(
    labels: NDArray[np.int64], rows: ActiveRows, classes: tuple[str, ...], label: LabelConfig
) -> list[str]:
    """Refuse shared rows without labels or with one class; notes about absent labels and
    classes."""
    where = f"the label column '{label.column}'"
    notes = []
    label.rule(classes)  # refuses thresholds of classes that do not exist
    if not len(rows.train):
        raise UserError(f"no row that all parties share has a label in {where}; at least some must")
    unlabelled = int((labels < 0).sum())
    if unlabelled:
        notes.append(
            f"{unlabelled:,} of {len(labels):,} rows have no label in {where}: used as unlabelled "
            "rows"
        )
    counts = np.bincount(labels[rows.train], minlength=len(classes))
    if (counts > 0).sum() < 2:
        only = classes[int(counts.argmax())]
        raise UserError(
            f"all labelled common rows are of the class '{only}'; there is nothing to tell apart"
        )
    aside = np.zeros(len(labels), np.bool_)
    aside[rows.kept_aside] = True
    everywhere = np.bincount(labels[(labels >= 0) & ~aside], minlength=len(classes))
    missing = [classes[z] for z in np.flatnonzero(everywhere == 0)]
    if missing and not label.classes:
        raise UserError(
            f"no row outside the test rows has the label {listed(missing)}; list all classes under "
            "[label] classes = [...] to look for it among the unlabelled rows, or remove those rows"
        )
    if missing:
        notes.append(
            f"no row has the label {listed(missing)}: looked for among the unlabelled rows"
        )
    if elsewhere := [classes[z] for z in np.flatnonzero((counts == 0) & (everywhere > 0))]:
        notes.append(f"only rows that not all parties share have the label {listed(elsewhere)}")
    return notes


def prepare_party(
    file: PartyFile,
    rows: PartyRows,
    alignment: Alignment | None,
    total: int,
    pool: int,
    seed: int,
    notes: list[str],
) -> OneParty:
    """One party's encoder and table; reads that party's file only."""
    name = file.config.name
    free = np.ones(total, np.bool_)
    free[rows.kept_aside] = False
    try:
        encoder = fit_encoder(file.info.path, file.spec, file.config.image, free)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    free[rows.aligned] = False
    free[rows.further] = False
    own = np.flatnonzero(free)
    most = min(pool, CELLS // max(1, int(np.prod(row_shape(encoder)))))
    if len(own) > most:
        notes.append(f"{name}: {most:,} of its {len(own):,} own rows are used, drawn at random")
        own = np.sort(np.random.default_rng([seed, 11]).choice(own, most, replace=False))
    wanted = [own, rows.aligned, np.concatenate([rows.kept_aside, rows.asked]), rows.further]
    encoded = encode_rows(encoder, file.info.path, np.concatenate(wanted), total)
    pooled, aligned, query, further = torch.split(encoded, [len(part) for part in wanted])
    if not len(own):
        notes.append(f"{name} has no rows of its own: it learns from the shared rows alone")
        pooled = aligned
    dropped = dict(getattr(encoder, "dropped", {}))
    remarks = dict(getattr(encoder, "remarks", {}))
    notes += [
        f"{name}: column '{column}' is not used: {why}" for column, why in list(dropped.items())[:5]
    ]
    notes += column_lines(name, dict(list(remarks.items())[:5]))
    facts = {
        "rows": total,
        "aligned": len(rows.aligned) + len(rows.kept_aside),
        "train": len(rows.aligned),
        "further": len(rows.further),
        "kept_aside": len(rows.kept_aside),
        "pool": len(own),
        "columns": encoder.columns[:1000],
        "features": list(row_shape(encoder)),
        "dropped": dict(list(dropped.items())[:1000]),
    }
    numbers = encoder.numbers if isinstance(encoder, TableEncoder) else ()
    table = PartyTable(name, pooled, aligned, query, encoder.spans, numbers, further)
    return OneParty(name, file, table, encoder, alignment, facts, own)
