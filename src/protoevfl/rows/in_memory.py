"""Tables in memory as what training needs: names, class numbers, encoders, party tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.rows.encoders import Encoder, ImageEncoder, stacked
from protoevfl.rows.feature_codes import FeatureSpec
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.frames import Parties, as_images, as_table, row_count, take
from protoevfl.rows.table import OwnRows, PartyTable

PIXELS = "pixels"  # the name of the column that an array of images stands for


def named(parties: Any, least: int = 2) -> dict[str, Any]:
    """{name: table}; a list gives names by number."""
    if isinstance(parties, Parties):
        parties = parties.tables
    if isinstance(parties, list | tuple):
        parties = {f"party_{m}": table for m, table in enumerate(parties)}
    if not isinstance(parties, Mapping):
        raise UserError("give the parties as {name: table}, a list of tables, or Parties(...)")
    found = {str(name): table for name, table in parties.items() if table is not None}
    if len(found) < least:
        raise UserError(f"{least} or more parties are needed, {len(found)} given")
    return found


def same_rows(tables: Mapping[str, Any]) -> int:
    counts = {name: row_count(table) for name, table in tables.items()}
    if len(set(counts.values())) > 1:
        raise UserError(
            "the parties' tables must have the same rows in the same order; their numbers are "
            f"{counts}"
        )
    return next(iter(counts.values()))


def encode_labels(labels: Any, rows: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """(n,) class numbers, -1 for None or NaN, and the classes in order."""
    values = np.asarray(labels.to_numpy() if hasattr(labels, "to_numpy") else labels)
    if values.shape != (rows,):
        raise UserError(f"labels must be one value a row ({rows}), not of the shape {values.shape}")
    gone = np.array([v is None or v != v for v in values.tolist()], np.bool_)
    try:
        classes = np.unique(
            values[~gone] if values.dtype.kind != "O" else np.array(values[~gone].tolist())
        )
    except TypeError:
        raise UserError("labels mix texts and numbers; use one kind") from None
    if classes.dtype.kind == "f" and bool((classes == classes.astype(np.int64)).all()):
        classes = classes.astype(np.int64)
    if classes.dtype.kind == "f" or len(classes) < 2:
        raise UserError("labels must be classes (texts or whole numbers), two or more")
    codes = np.full(rows, -1, np.int64)
    codes[~gone] = np.searchsorted(classes, values[~gone].astype(classes.dtype))
    return codes, classes


def prepare(
    name: str, table: Any, pool: Any, known: NDArray[np.int64], unknown: NDArray[np.int64]
) -> tuple[Encoder, PartyTable]:
    """The encoder, fitted on all the party's rows, and its table."""
    parts = [take(table, known), take(table, unknown), *([] if pool is None else [pool])]
    encoder = _fit(name, parts)
    rows = [encode(encoder, part, name) for part in parts if row_count(part)]
    aligned, others = rows[0], rows[1:]
    own = torch.cat(others) if others else aligned
    numbers = encoder.numbers if isinstance(encoder, TableEncoder) else ()
    return encoder, PartyTable(name, own, aligned, aligned[:0], encoder.spans, numbers)


def own_rows(
    active: PartyTable,
    labels: NDArray[np.int64],
    unlabelled: int,
    pool_labels: NDArray[np.int64] | None,
) -> OwnRows | None:
    """What the first party's own model learns from; None without labels of its pool.

    labels        (N_a,) of the shared rows that have one
    unlabelled    shared rows without a label; they stand first in the pool
    pool_labels   of its further rows
    """
    if pool_labels is None or not (pool_labels >= 0).any():
        return None
    known = np.concatenate([labels, np.full(unlabelled, -1, np.int64), pool_labels])
    rows = torch.cat([active.aligned, active.pool])
    return OwnRows(rows, torch.from_numpy(known), active.query, len(active.aligned))


def _fit(name: str, parts: Sequence[Any]) -> Encoder:
    if (images := as_images(parts[0])) is not None:
        others = [found for part in parts if (found := as_images(part)) is not None and len(found)]
        low, high = (0.0, 1.0) if images.dtype == np.uint8 else _range(others)
        return ImageEncoder(PIXELS, images.shape[1:], low, high)
    tables = [as_table(part, name) for part in parts]
    spec = FeatureSpec(tuple(tables[0].column_names))
    return TableEncoder.fit(iter(_batches(tables, name)), spec, name)


def _range(images: Sequence[NDArray[Any]]) -> tuple[float, float]:
    return min(0.0, *(float(x.min()) for x in images)), max(1.0, *(float(x.max()) for x in images))


def _batches(tables: Sequence[Any], name: str) -> Iterator[Any]:
    for table in tables:
        if missing := [c for c in tables[0].column_names if c not in table.column_names]:
            raise UserError(f"{name}: the pool has no column '{missing[0]}'")
        if table.num_rows:
            yield table.select(tables[0].column_names)


def encode(encoder: Encoder, table: Any, name: str) -> Tensor:
    if isinstance(encoder, ImageEncoder):
        images = as_images(table)
        if images is None or images.shape[1:] != encoder.shape:
            raise UserError(f"{name}: images of the shape {encoder.shape} are expected")
        return torch.from_numpy(encoder.pixels(images))
    found = as_table(table, name)
    if missing := [c for c in encoder.columns if c not in found.column_names]:
        raise UserError(f"{name} has no column '{missing[0]}'; the model was fitted with it")
    return stacked(encoder, [found.select(encoder.columns)], found.num_rows, name)
