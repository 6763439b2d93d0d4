"""Tables in memory as what training needs: names, class numbers, encoders, party tables."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.rows.encoders import (
    Encoder,
    ImageEncoder,
    ImageSpec,
    column_lines,
    encode_rows,
    fit_encoder,
)
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.frames import PIXELS, Frame, Parties, row_count, same_rows, take
from protoevfl.rows.labels import spelt_alike
from protoevfl.rows.row_order import in_order_of
from protoevfl.rows.survey import FeatureSpec
from protoevfl.rows.table import Further, OwnRows, PartyTable

Places = NDArray[np.int64]


def named(parties: Any, least: int = 2) -> dict[str, Any]:
    """{name: table}; a list gives names by number."""
    if isinstance(parties, Parties):
        parties = parties.tables
    if isinstance(parties, list | tuple):
        parties = {f"party_{m}": table for m, table in enumerate(parties)}
    if not isinstance(parties, Mapping):
        raise UserError(
            "give the parties as {name: table}, a list of tables, or Parties(...); for one table "
            "say which columns are whose: ProtoEVFLClassifier(parties={name: columns})"
        )
    tables = {str(name): table for name, table in parties.items() if table is not None}
    if len(tables) < least:
        raise UserError(f"{least} or more parties are needed, {len(tables)} given")
    return tables


def encode_labels(
    labels: Any, rows: int, listed: Sequence[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """(n,) class numbers, -1 for None or NaN, and the classes in order: those that occur, or all
    that are `listed`."""
    values = np.asarray(labels.to_numpy() if hasattr(labels, "to_numpy") else labels)
    if values.shape != (rows,):
        raise UserError(
            f"labels must be one value per row ({rows}), not of the shape {values.shape}"
        )
    gone = np.array([v is None or v != v for v in values.tolist()], np.bool_)
    known = values[~gone]
    try:
        classes = np.unique(known if values.dtype.kind != "O" else np.array(known.tolist()))
    except TypeError:
        raise UserError("labels mix texts and numbers; use one kind") from None
    if classes.dtype.kind == "f" and np.isinf(classes).any():
        raise UserError(
            "Input y contains infinity or a value too large for dtype('float64'); labels must be "
            "classes"
        )
    if classes.dtype.kind == "f" and bool((classes == classes.astype(np.int64)).all()):
        classes = classes.astype(np.int64)
    if classes.dtype.kind == "f":
        raise UserError(
            "Unknown label type: numbers with fractions; labels must be classes (texts or whole "
            "numbers)"
        )
    if len(classes) < 2:
        raise UserError(f"labels must be of two or more classes, here is {len(classes)} class")
    if twins := spelt_alike([str(name) for name in classes]):
        text = f"the labels {' and '.join(map(repr, twins))} are different classes; is that meant?"
        warnings.warn(text, UserWarning, stacklevel=3)
    if listed is not None:
        classes = _all_listed(classes, listed)
    codes = np.full(rows, -1, np.int64)
    codes[~gone] = np.searchsorted(classes, known.astype(classes.dtype))
    return codes, classes


def _all_listed(occur: NDArray[Any], listed: Sequence[Any]) -> NDArray[Any]:
    """The listed classes in order; those that occur must be among them."""
    classes = np.unique(np.asarray(listed))
    names = classes.tolist()
    if classes.dtype.kind not in "iubU" or len(names) != len(listed):
        raise UserError("classes must be different texts or whole numbers, each listed once")
    if stray := [name for name in occur.tolist() if name not in names]:
        raise UserError(
            f"the label {stray[0]!r} is not among the classes {', '.join(map(repr, names))}; list "
            "every class, or leave classes out to take those that occur"
        )
    return classes


def class_numbers(
    labels: Any,
    rows: int,
    pool_labels: Any,
    pools: Mapping[str, Any],
    active: str,
    listed: Sequence[Any] | None = None,
) -> tuple[Places, Places | None, NDArray[Any]]:
    """Class numbers of the shared rows and of the first party's pool, and the classes of both.

    active   the name of the first party, whose pool the labels belong to
    listed   all classes, where some have no label; else those that occur
    """
    if pool_labels is None:
        codes, classes = encode_labels(labels, rows, listed)
        return codes, None, classes
    if pools.get(active) is None:
        raise UserError(f"pool_labels belong to the pool of {active}, which pools does not have")
    pool = {f"the pool of {active}": pools[active]}
    more = row_count(pools[active])
    pool_labels = in_order_of(pool_labels, pool, "pool_labels")
    both = [*np.asarray(labels, object).tolist(), *np.asarray(pool_labels, object).tolist()]
    if len(both) != rows + more:
        raise UserError(f"pool_labels must be one value per row of the pool ({more})")
    codes, classes = encode_labels(np.array(both, object), rows + more, listed)
    return codes[:rows], codes[rows:], classes


@dataclass(frozen=True)
class RowKinds:
    """Rows of the tables by who has them and what is known of them."""

    aligned: Places  # everybody has them, labelled
    further: Places  # the first party and some others have them, labelled
    has: NDArray[np.bool_]  # (M, n): which party has which row

    @classmethod
    def of(cls, has: NDArray[np.bool_], codes: NDArray[np.int64]) -> "RowKinds":
        """codes (n,): class numbers, -1 without a label."""
        common = has.all(0)
        labelled = has[0] & (codes >= 0)
        aligned = np.flatnonzero(labelled & common)
        if not len(aligned):
            raise UserError("no row that all parties have is labelled; at least some must be")
        return cls(aligned, np.flatnonzero(labelled & has[1:].any(0) & ~common), has)

    def further_of(self, party: int) -> Places:
        """Those of the further rows that a party has."""
        places: Places = self.further[self.has[party, self.further]]
        return places

    def own(self, party: int) -> Places:
        """A party's other rows: part of its pool."""
        alone = self.has[party].copy()
        alone[self.aligned] = False
        alone[self.further] = False
        return np.flatnonzero(alone)


def who_has(tables: Mapping[str, Any], present: Mapping[str, Any] | None) -> NDArray[np.bool_]:
    """(M, n): which party has which row; a party that `present` does not name has all of them."""
    rows = same_rows(tables)
    if stray := sorted(set(present or {}) - set(tables)):
        raise UserError(
            f"present has '{stray[0]}', which is not among the parties {', '.join(tables)}"
        )
    everywhere = np.ones(rows, np.bool_)
    masks = [np.asarray((present or {}).get(name, everywhere), np.bool_) for name in tables]
    for name, mask in zip(tables, masks, strict=True):
        if mask.shape != (rows,):
            raise UserError(f"present['{name}'] must have {rows} entries, one per row")
    return np.stack(masks)


def prepare(
    name: str, table: Any, pool: Any, kinds: RowKinds, party: int
) -> tuple[Encoder, PartyTable]:
    """The encoder, fitted on all the party's rows, and its table.

    pool    the party's rows beyond those of `table`
    party   its place among the parties
    """
    places = (kinds.aligned, kinds.further_of(party), kinds.own(party))
    frame = Frame(name, *(take(table, rows) for rows in places), *([] if pool is None else [pool]))
    for part in frame.tables:
        if missing := [c for c in frame.columns if c not in part.column_names]:
            raise UserError(f"{name}: the pool has no column '{missing[0]}'")
    image = None if frame.shape is None else ImageSpec(PIXELS, frame.shape)
    encoder = fit_encoder(frame, FeatureSpec(frame.columns), image)
    _warn(encoder, name)
    rows = encode_rows(encoder, frame)
    first, second = len(places[0]), len(places[0]) + len(places[1])
    aligned, further, others = rows[:first], rows[first:second], rows[second:]
    own = others if len(others) else aligned
    numbers = encoder.numbers if isinstance(encoder, TableEncoder) else ()
    table = PartyTable(name, own, aligned, aligned[:0], encoder.spans, numbers, further)
    return encoder, table


def _warn(encoder: Encoder, name: str) -> None:
    """What a person should know of how columns were read."""
    if not isinstance(encoder, TableEncoder):
        return
    for line in column_lines(name, encoder.remarks):
        warnings.warn(line, UserWarning, stacklevel=4)
    for column, why in encoder.dropped.items():
        if why.startswith("free text"):
            text = f"{name}: column '{column}' is not used: {why}"
            warnings.warn(text, UserWarning, stacklevel=4)


def own_rows(
    active: PartyTable,
    kinds: RowKinds,
    codes: NDArray[np.int64],
    pool_codes: NDArray[np.int64] | None,
) -> tuple[OwnRows | None, Further | None]:
    """What the first party's own model learns from, where it has labels beyond those of the rows
    that everybody has; codes (n,) of the tables' rows, pool_codes of its further pool."""
    alone = kinds.own(0)
    rest = codes[alone]
    if pool_codes is not None:
        rest = np.concatenate([rest, pool_codes])
    if not len(kinds.further) and not (rest >= 0).any():
        return None, None
    assert active.further is not None
    parts = [active.aligned, active.further, *([active.pool] if len(rest) else [])]
    known = np.concatenate([codes[kinds.aligned], codes[kinds.further], rest])
    shared = len(kinds.aligned) + len(kinds.further)
    own = OwnRows(torch.cat(parts), torch.from_numpy(known), active.query, shared)
    if not len(kinds.further):
        return own, None
    has = torch.from_numpy(kinds.has[:, kinds.further])
    return own, Further(torch.from_numpy(codes[kinds.further]), has)


def encode(encoder: Encoder, table: Any, name: str) -> Tensor:
    """New rows of a party."""
    frame = Frame(name, table)
    if isinstance(encoder, ImageEncoder):
        if frame.shape != encoder.shape:
            raise UserError(f"{name}: images of the shape {encoder.shape} are expected")
    elif missing := [c for c in encoder.columns if c not in frame.columns]:
        raise UserError(f"{name} has no column '{missing[0]}'; the model was fitted with it")
    return encode_rows(encoder, frame)
