"""Tables in memory of any make (pandas, polars, pyarrow, numpy): `Frame`, one party's as a source
of rows, and `Parties`, those of several with rows that can be cut."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protoevfl.errors import UserError, listed
from protoevfl.rows.row_order import in_one_order

PIXELS = "pixels"  # the name of the column that an array of images stands for


class Frame:
    """One party's tables in memory, one below the other, read as its file would be.

    name     for errors
    shape    (C, H, W) where the tables are arrays of images, else None
    """

    def __init__(self, name: str, *parts: Any) -> None:
        images = [_as_images(part) for part in parts]
        self.name = name
        self.shape = None if images[0] is None else images[0].shape[1:]
        if self.shape is None:
            self.tables = [_as_table(part, name) for part in parts]
            return
        if any(x is None or x.shape[1:] != self.shape for x in images):
            raise UserError(f"{name}: images of the shape {self.shape} are expected")
        self.tables = [_pixel_column(x) for x in images if x is not None]

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.tables)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.tables[0].column_names)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        for table in self.tables:
            if table.num_rows:
                yield table.select(list(columns))


class Parties:
    """{name: table} as one thing with rows, for scikit-learn's cross-validation and searches.

    `Parties.split(frame, {"bank": ["income"], "insurer": ["claims"]})` cuts one frame's columns
    into parties.
    """

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self.tables = in_one_order({str(name): table for name, table in tables.items()})
        self.shape = (same_rows(self.tables), len(self.tables))

    @classmethod
    def split(cls, frame: Any, columns: Mapping[str, Any]) -> "Parties":
        """Names (or numbers, for numpy) of the columns that belong to each party."""
        if isinstance(frame, np.ndarray):
            return cls({name: frame[:, list(own)] for name, own in columns.items()})
        return cls({name: frame[list(own)] for name, own in columns.items()})

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> "Parties":
        """The parties with some rows only: row numbers, a mask, or a slice."""
        rows = rows[0] if isinstance(rows, tuple) else rows
        index = np.arange(len(self))[rows]
        return Parties({name: take(table, index) for name, table in self.tables.items()})


def row_count(table: Any) -> int:
    return int(table.num_rows if hasattr(table, "num_rows") else len(table))


def same_rows(tables: Mapping[str, Any]) -> int:
    """How many rows all of the tables have."""
    counts = {name: row_count(table) for name, table in tables.items()}
    if len(set(counts.values())) != 1:
        raise UserError(
            "the parties' tables must have the same rows in the same order; there are "
            + listed([f"{count:,} of '{name}'" for name, count in counts.items()])
        )
    return next(iter(counts.values()))


def take(table: Any, rows: NDArray[np.int64]) -> Any:
    """Some rows of a table, in that order, in the same make."""
    if hasattr(table, "iloc"):
        return table.iloc[rows]
    if hasattr(table, "num_rows"):
        return table.take(rows)
    return table[rows] if hasattr(table, "shape") else [table[i] for i in rows]


def _as_images(table: Any) -> NDArray[Any] | None:
    """(n, c, h, w) as it is, (n, h, w) with one channel; None for anything else."""
    if not isinstance(table, np.ndarray) or table.ndim not in (3, 4):
        return None
    images = table if table.ndim == 4 else table[:, None]
    if not np.isfinite(images).all():
        raise UserError("images must not hold missing or infinite values")
    return images


def _pixel_column(images: NDArray[Any]) -> Any:
    """A table with one list of C * H * W numbers per row."""
    import pyarrow as pa

    size = int(np.prod(images.shape[1:]))
    values = pa.array(np.ascontiguousarray(images).reshape(-1))
    return pa.table({PIXELS: pa.FixedSizeListArray.from_arrays(values, size)})


def _as_table(table: Any, name: str) -> Any:
    """A pyarrow Table; numpy columns are called x0, x1, ..."""
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return table.combine_chunks()
    if hasattr(table, "to_arrow"):  # polars
        return _plain_texts(table.to_arrow())
    if hasattr(table, "iloc"):  # pandas
        frame = table.rename(columns=str)  # columns may be numbers
        try:
            return _plain_texts(pa.Table.from_pandas(frame, preserve_index=False))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UserError(
                f"{name}: a column mixes types ({str(error).splitlines()[0][:120]}); make it one"
            ) from None
    array = np.asarray(table)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise UserError(
            f"{name}: a table of numbers (rows, columns) is expected; for texts give a data frame"
        )
    return pa.table({f"x{i}": array[:, i] for i in range(array.shape[1])})


def _plain_texts(table: Any) -> Any:
    """large_string and string_view as string, chunks joined."""
    import pyarrow as pa

    kinds = [
        pa.string()
        if pa.types.is_large_string(f.type) or pa.types.is_string_view(f.type)
        else f.type
        for f in table.schema
    ]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True)))).combine_chunks()
