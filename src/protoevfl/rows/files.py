"""A party's file: Parquet, or CSV plain, gzipped or zstd-compressed, by columns, whole or in
batches.

`scan` looks at metadata only. `read_columns` gives one table. `iter_batches` holds one batch at a
time: Parquet pages are read through a small buffer even when the file is one row group. Id columns
are passed as `text`, because a CSV reader would turn "00123" into 123. A column that mixes numbers
and text comes out as text, in both ways of reading.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from protoevfl.errors import UserError
from protoevfl.rows import csv_files

MOST_ROWS = 50_000_000  # of a file; as many ids as one alignment takes
PARQUET = (".parquet", ".pq")
CSV = (".csv", ".tsv")
PACKED = (".gz", ".zst")
BATCH_ROWS = 65_536
_CELLS = 1 << 23  # a batch holds at most this many cells, so that 10,000 columns fit too


@dataclass(frozen=True)
class FileInfo:
    """What is known of a file; for CSV `rows` is None and types are a guess until it is read."""

    path: Path
    format: str  # "parquet" or "csv"
    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: int | None
    bytes: int


def scan(path: Path | str) -> FileInfo:
    """Columns, types and, for Parquet, rows, without reading the data."""
    path = Path(path)
    kind = check_file(path)
    if kind == "parquet":
        with _parquet(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    else:
        schema, rows = csv_files.header(path), None
    if rows == 0:
        raise UserError(f"{path.name} has columns but no rows; export it again with them")
    types = tuple(str(field.type) for field in schema)
    return FileInfo(path, kind, tuple(schema.names), types, rows, path.stat().st_size)


def read_columns(path: Path | str, columns: Sequence[str], text: Collection[str] = ()) -> Any:
    """The named columns as a pyarrow Table, in that order; `text` names those to read as text
    (ids)."""
    path = Path(path)
    info = scan(path)
    require_columns(info, columns)
    if info.format == "parquet":
        with _parquet(path) as file:
            table = file.read(columns=list(columns)).select(list(columns))
    else:
        table = csv_files.read(path, columns, text)
    if table.num_rows == 0:
        raise UserError(f"{path.name} has columns but no rows; export it again with them")
    return table


def iter_batches(
    path: Path | str,
    columns: Sequence[str],
    text: Collection[str] = (),
    batch_rows: int = BATCH_ROWS,
) -> Iterator[Any]:
    """pyarrow RecordBatches of at most `batch_rows` rows, the same types in each, one in memory at
    a time."""
    path = Path(path)
    info = scan(path)
    require_columns(info, columns)
    size = max(1, min(batch_rows, _CELLS // max(1, len(columns))))
    if info.format == "parquet":
        with _parquet(path) as file:
            for batch in file.iter_batches(
                batch_size=size, columns=list(columns), use_threads=False
            ):
                yield batch.select(list(columns))
        return
    types = _survey(path, tuple(columns), frozenset(text))[0]
    for batch in csv_files.stream(path, columns, types):
        yield from (batch.slice(i, size) for i in range(0, batch.num_rows, size))


def count_rows(path: Path | str) -> int:
    """Number of data rows; for CSV this takes a pass over the file."""
    info = scan(path)
    return (
        _survey(info.path, info.names[:1], frozenset(info.names[:1]))[1]
        if info.rows is None
        else info.rows
    )


def check_file(path: Path) -> str:
    """ "parquet" or "csv"; UserError when the file is absent, empty or of another kind."""
    suffixes = [s.lower() for s in path.suffixes]
    last = suffixes[-2:-1] if suffixes[-1:] and suffixes[-1] in PACKED else suffixes[-1:]
    packed = len(suffixes) > 1 and suffixes[-1] in PACKED
    kind = (
        "parquet"
        if last and last[0] in PARQUET and not packed
        else "csv"
        if last and last[0] in CSV
        else None
    )
    if kind is None:
        raise UserError(
            f"{path.name}: unknown kind of file; use .parquet, .csv, .tsv, .csv.gz or .csv.zst"
        )
    if path.is_dir():
        raise UserError(f"{path} is a folder; name the file in it")
    if not path.is_file():
        raise UserError(f"{path} does not exist{_instead(path)}")
    if path.stat().st_size == 0:
        raise UserError(f"{path.name} is empty; it needs columns and rows")
    return kind


def require_columns(info: FileInfo, wanted: Iterable[str]) -> None:
    """UserError naming the first column that the file does not have, and those it has."""
    have = set(info.names)
    for name in wanted:
        if name not in have:
            near = difflib.get_close_matches(name, info.names, 1)
            hint = f" (did you mean '{near[0]}'?)" if near else ""
            shown = ", ".join(info.names[:20]) + (
                f", ... ({len(info.names)} in all)" if len(info.names) > 20 else ""
            )
            raise UserError(
                f"{info.path.name} has no column '{name}'{hint}; its columns are {shown}"
            )


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    try:
        # buffered, not pre-read: a file of one huge row group would otherwise be in memory at once
        with pq.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            csv_files.check_unique(path, file.schema_arrow.names)
            # a file of a few hundred kB can claim any number of rows and keep a machine busy
            if file.metadata.num_rows > MOST_ROWS:
                raise UserError(
                    f"{path.name} says it has {file.metadata.num_rows:,} rows, more than the "
                    f"{MOST_ROWS:,} that can be aligned; split it"
                )
            yield file
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise UserError(
            f"{path.name} is damaged or not a Parquet file ({str(error).splitlines()[0]})"
        ) from None


def _instead(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (there is no folder {path.parent})"
    near = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _survey(
    path: Path, columns: tuple[str, ...], text: frozenset[str]
) -> tuple[dict[str, Any], int]:
    stat = path.stat()
    return _surveyed(path, stat.st_mtime_ns, stat.st_size, columns, text)


@lru_cache(maxsize=16)
def _surveyed(
    path: Path, changed: int, size: int, columns: tuple[str, ...], text: frozenset[str]
) -> tuple[dict[str, Any], int]:
    types, rows = csv_files.survey(path, columns, text)
    if rows == 0:
        raise UserError(f"{path.name} has columns but no rows; export it again with them")
    return types, rows
