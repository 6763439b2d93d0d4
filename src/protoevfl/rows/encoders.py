"""A party's rows as tensors: an encoder fitted on training rows, restored from JSON, applied batch
by batch, whatever the source: a file (its path) or tables in memory (`Frame`).

Tables go through `features.TableEncoder`. Images are a list column: bytes stay bytes, other
numbers are moved to 0..1 by the training rows' range, and a picture that is not square is padded
with its darkest value at right or below.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.errors import ColumnsError, UserError
from protoevfl.rows import drift
from protoevfl.rows.columns import as_images
from protoevfl.rows.csv_files import delimiter
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.files import check_file, iter_batches
from protoevfl.rows.frames import Frame
from protoevfl.rows.recognise import Recognition, recognise
from protoevfl.rows.survey import FeatureSpec, Survey

VERSION = 1


@dataclass(frozen=True)
class ImageSpec:
    """Which column holds the pictures, and their shape."""

    column: str  # of lists of pixels
    shape: tuple[int, ...]  # (H, W) or (C, H, W)


class ImageEncoder:
    """Pictures of one column as (n, C, S, S), uint8 or float32 in 0..1; S is the longer side."""

    spans = None

    def __init__(
        self, column: str, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0
    ) -> None:
        self.column, self.shape, self.low, self.high = column, shape, low, high
        self.side = max(shape[-2:])

    @classmethod
    def fit(cls, batches: Iterable[Any], image: ImageSpec) -> "ImageEncoder":
        """The range of the training rows' pixels; bytes and pixels within 0..1 are left as they
        are."""
        low, high = 0.0, 1.0
        for batch in batches:
            x = as_images(batch.column(image.column), image.shape, image.column)
            if x.dtype != np.uint8 and len(x):
                low = min(low, float(x.min()))
                high = max(high, float(x.max()))
        return cls(image.column, image.shape, low, high)

    @property
    def columns(self) -> list[str]:
        return [self.column]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (1 if len(self.shape) == 2 else self.shape[0], self.side, self.side)

    def transform(self, batch: Any, where: str = "the table") -> NDArray[Any]:
        """(b, C, S, S) of one batch."""
        return self.pixels(
            as_images(batch.column(self.column), self.shape, f"{where} {self.column}")
        )

    def pixels(self, x: NDArray[Any]) -> NDArray[Any]:
        """(b, C, H, W) -> (b, C, S, S), scaled and padded."""
        if x.dtype != np.uint8:
            x = np.clip((x - self.low) / (self.high - self.low), 0, 1).astype(np.float32)
        pad = [(0, 0), (0, 0), *((0, self.side - size) for size in x.shape[2:])]
        return np.pad(x, pad)

    def state(self) -> dict[str, Any]:
        facts = {
            "column": self.column,
            "shape": list(self.shape),
            "low": self.low,
            "high": self.high,
        }
        return {"kind": "images", "version": VERSION, **facts}


Encoder = TableEncoder | ImageEncoder


def row_shape(encoder: Encoder) -> tuple[int, ...]:
    """The shape of one encoded row."""
    return encoder.row_shape if isinstance(encoder, ImageEncoder) else (encoder.width,)


def encoder_state(encoder: Encoder) -> dict[str, Any]:
    """JSON values; `encoder_from` restores them exactly."""
    return (
        encoder.state()
        if isinstance(encoder, ImageEncoder)
        else {"kind": "table", **encoder.state()}
    )


def encoder_from(state: Mapping[str, Any]) -> Encoder:
    if state.get("kind") == "table":
        return TableEncoder.from_state(
            {name: value for name, value in state.items() if name != "kind"}
        )
    if state.get("kind") != "images" or state.get("version") != VERSION:
        raise UserError("the encoder is of another version of protoevfl; train again")
    return ImageEncoder(state["column"], tuple(state["shape"]), state["low"], state["high"])


Source = Path | Frame  # a party's rows: its file, or tables in memory


def recognise_columns(source: Source, spec: FeatureSpec) -> Recognition:
    """How the text columns of a source are written, from all of its rows."""
    is_csv = isinstance(source, Path) and check_file(source) == "csv"
    mark = delimiter(source) if is_csv and isinstance(source, Path) else ""

    def batches(columns: Sequence[str], text: Sequence[str]) -> Iterator[Any]:
        return _batches(source, columns, text=text)

    return recognise(batches, spec, not is_csv, mark)


def fit_encoder(
    source: Source,
    spec: FeatureSpec,
    image: ImageSpec | None,
    keep: NDArray[np.bool_] | None = None,
    recognition: Recognition | None = None,
) -> Encoder:
    """An encoder fitted on the rows of `keep` (rows,), or on all.

    recognition   of `recognise_columns`, where it is known already
    """
    if image is not None:
        return ImageEncoder.fit(_batches(source, [image.column], keep), image)
    recognised = recognition or recognise_columns(source, spec)
    if recognised.errors:
        raise ColumnsError(column_lines(source.name, recognised.errors))
    batches = _batches(source, spec.features, text=recognised.text)
    encoder = TableEncoder.fit(batches, spec, source.name, keep, recognised.readings)
    encoder.remarks |= {c: text for c, text in recognised.remarks.items() if c in encoder.columns}
    return encoder


def column_lines(where: str, texts: Mapping[str, str]) -> list[str]:
    """One line per column."""
    return [f"{where}: column '{name}' {text}" for name, text in texts.items()]


def _batches(
    source: Source,
    columns: Sequence[str],
    keep: NDArray[np.bool_] | None = None,
    text: Collection[str] = (),
) -> Iterator[Any]:
    """The batches of a source, of each only the rows of `keep` (rows,); `text` columns of a CSV
    file are not taken for numbers."""
    import pyarrow as pa

    whole = (
        source.batches(columns)
        if isinstance(source, Frame)
        else iter_batches(source, columns, text)
    )
    if keep is None:
        yield from whole
        return
    start = 0
    for batch in whole:
        mask = keep[start : start + batch.num_rows]
        start += batch.num_rows
        if mask.any():
            yield batch if mask.all() else batch.filter(pa.array(mask))
    if start != len(keep):
        raise UserError(
            f"{source.name} has {start} rows, {len(keep)} were expected; did the file change?"
        )


def _own_batches(
    encoder: Encoder, source: Source, keep: NDArray[np.bool_] | None = None
) -> Iterator[Any]:
    """The columns that an encoder reads, as it reads them."""
    text = encoder.readings if isinstance(encoder, TableEncoder) else ()
    return _batches(source, encoder.columns, keep, text)


def encode_rows(
    encoder: Encoder, source: Source, rows: NDArray[np.int64] | None = None, total: int = 0
) -> Tensor:
    """Rows of a source, encoded; holds one batch and the result at a time.

    rows     which of a file's `total` rows, in this order; None: all rows of a frame
    """
    if rows is None:
        assert isinstance(source, Frame)
        return _stacked(encoder, _own_batches(encoder, source), source.rows, source.name)
    keep = np.zeros(total, np.bool_)
    keep[rows] = True
    place = np.cumsum(keep) - 1  # row of the file -> row of the result in file order
    batches = _own_batches(encoder, source, keep)
    in_file_order = _stacked(encoder, batches, int(keep.sum()), source.name)  # (k, ...)
    return in_file_order[torch.from_numpy(place[rows])]


def _stacked(encoder: Encoder, batches: Iterable[Any], rows: int, where: str) -> Tensor:
    """All rows of the batches, encoded into one tensor."""
    if isinstance(encoder, TableEncoder):
        return torch.from_numpy(encoder.transform(iter(batches), rows, where))
    parts = [encoder.transform(batch, where) for batch in batches]
    return torch.from_numpy(
        np.concatenate(parts) if parts else np.zeros((0, *encoder.row_shape), np.float32)
    )


def encoded_batches(
    encoder: Encoder, source: Source, survey: Survey | None = None
) -> Iterator[Tensor]:
    """A whole source, batch by batch; `survey` sees them too."""
    start = 0
    for batch in _own_batches(encoder, source):
        if survey is not None:
            survey.add(batch, start, None)
        start += batch.num_rows
        yield _stacked(encoder, [batch], batch.num_rows, source.name)


def differences(encoder: Encoder, source: Source) -> list[str]:
    """How the rows of a source differ from those of training; [] for images, which are not
    compared."""
    if not isinstance(encoder, TableEncoder):
        return []
    survey = encoder.survey(source.name)
    for batch in _own_batches(encoder, source):
        survey.add(batch, survey.rows, None)
    return drift.differences(encoder.pictures, survey)
