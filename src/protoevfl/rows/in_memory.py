"""Tables in memory as what training needs: names, class numbers, encoders, party tables."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.rows.encoders import Encoder, ImageEncoder, ImageSpec, encode_rows, fit_encoder
from protoevfl.rows.features import FeatureSpec, TableEncoder
from protoevfl.rows.frames import PIXELS, Frame, Parties, take
from protoevfl.rows.table import OwnRows, PartyTable


def named(parties: Any, least: int = 2) -> dict[str, Any]:
    """{name: table}; a list gives names by number."""
    if isinstance(parties, Parties):
        parties = parties.tables
    if isinstance(parties, list | tuple):
        parties = {f"party_{m}": table for m, table in enumerate(parties)}
    if not isinstance(parties, Mapping):
        raise UserError("give the parties as {name: table}, a list of tables, or Parties(...)")
    tables = {str(name): table for name, table in parties.items() if table is not None}
    if len(tables) < least:
        raise UserError(f"{least} or more parties are needed, {len(tables)} given")
    return tables


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
    """The encoder, fitted on all the party's rows, and its table.

    known      rows that have a label
    unknown    shared rows without one; with `pool`, the party's further rows, they are its pool
    """
    frame = Frame(name, take(table, known), take(table, unknown), *([] if pool is None else [pool]))
    for part in frame.tables:
        if missing := [c for c in frame.columns if c not in part.column_names]:
            raise UserError(f"{name}: the pool has no column '{missing[0]}'")
    image = None if frame.shape is None else ImageSpec(PIXELS, frame.shape)
    encoder = fit_encoder(frame, FeatureSpec(frame.columns), image)
    rows = encode_rows(encoder, frame)
    aligned, others = rows[: len(known)], rows[len(known) :]
    own = others if len(others) else aligned
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


def encode(encoder: Encoder, table: Any, name: str) -> Tensor:
    """New rows of a party."""
    frame = Frame(name, table)
    if isinstance(encoder, ImageEncoder):
        if frame.shape != encoder.shape:
            raise UserError(f"{name}: images of the shape {encoder.shape} are expected")
    elif missing := [c for c in encoder.columns if c not in frame.columns]:
        raise UserError(f"{name} has no column '{missing[0]}'; the model was fitted with it")
    return encode_rows(encoder, frame)
