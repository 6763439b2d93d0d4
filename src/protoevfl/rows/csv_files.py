"""CSV through pyarrow: types that hold for the whole file, bounded memory, and errors that name the
line.

pyarrow's streaming reader decides a column's type from the first block. Here a type that fails
further down is widened (nothing -> whole number -> number -> truth -> date, time -> text) and the
pass starts again, so `survey` ends with types that every row obeys, those that `read` infers;
`stream` then reads with exactly those.
"""

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from protoevfl.errors import UserError

BLOCK = 8 << 20  # bytes read at a time; a row must fit
MISSING = [*pacsv.ConvertOptions().null_values, "?"]
_MOMENTS = [pa.timestamp(unit, tz=zone) for unit in ("s", "ns") for zone in (None, "UTC")]
_WIDENING = [
    pa.null(),
    pa.int64(),
    pa.float64(),
    pa.bool_(),
    pa.date32(),
    pa.time32("s"),
    *_MOMENTS,
    pa.string(),
]
_WIDER = dict(zip(_WIDENING, _WIDENING[1:]))
_PACKED = {".gz": "gzip", ".zst": "zstd"}


def header(path: Path) -> Any:
    """The schema as the first block suggests it: cheap, and only a guess for later rows."""
    with _explained(path), _open(path, None, {}) as reader:
        check_unique(path, reader.schema.names)  # decodes the names, within `_explained`
        return reader.schema


def survey(path: Path, columns: Sequence[str], text: Collection[str]) -> tuple[dict[str, Any], int]:
    """One or more full passes in bounded memory: types that hold for every row, and the number of
    rows."""
    names = header(path)
    _check_quotes(path)
    types = {c: pa.string() if c in text else names.field(c).type for c in columns}
    while True:
        try:
            with _explained(path), _open(path, columns, types) as reader:
                return types, sum(batch.num_rows for batch in reader)
        except _TooNarrowError as narrow:
            column = names.names[narrow.column]
            types[column] = _WIDER.get(types[column], pa.string())


def read(path: Path, columns: Sequence[str], text: Collection[str]) -> Any:
    """The columns as one table; types are inferred over all rows."""
    _check_quotes(path)
    options = _convert(columns, dict.fromkeys((c for c in columns if c in text), pa.string()))
    with _explained(path), _bytes(path) as source:
        table = pacsv.read_csv(source, _READ, _parse(path), options)
    if binary := [f.name for f in table.schema if pa.types.is_binary(f.type)]:
        _not_utf8(path, f"column '{binary[0]}'")
    return table


def stream(path: Path, columns: Sequence[str], types: dict[str, Any]) -> Iterator[Any]:
    """Record batches of about BLOCK bytes of text, typed as `survey` found."""
    try:
        with _explained(path), _open(path, columns, types) as reader:
            yield from reader
    except _TooNarrowError as narrow:
        where = f"{path.name}: a value of column {narrow.column + 1}"
        raise UserError(
            f"{where} is no longer of the type found before; did the file change? run it again"
        ) from None


def _check_quotes(path: Path) -> None:
    """A quote that is never closed would swallow the rest of the file as one value, without an
    error."""
    odd = False
    with _explained(path), _bytes(path) as source:
        while chunk := source.read(BLOCK):
            odd ^= bool(chunk.count(b'"') % 2)
    if odd:
        raise UserError(
            f'{path.name}: a quote (") is opened and never closed; quotes within a value are '
            "written twice"
        )


class _TooNarrowError(Exception):
    """A value does not fit the type of its column."""

    def __init__(self, column: int) -> None:
        self.column = column


_READ = pacsv.ReadOptions(block_size=BLOCK)


def _bytes(path: Path) -> Any:
    return pa.input_stream(str(path), compression=_PACKED.get(path.suffix.lower()))


@contextmanager
def _open(path: Path, columns: Sequence[str] | None, types: dict[str, Any]) -> Iterator[Any]:
    with _bytes(path) as source:
        reader = pacsv.open_csv(source, _READ, _parse(path), _convert(columns, types))
        if binary := [f.name for f in reader.schema if pa.types.is_binary(f.type)]:
            _not_utf8(path, f"column '{binary[0]}'")
        yield reader


def _convert(columns: Sequence[str] | None, types: dict[str, Any]) -> Any:
    return pacsv.ConvertOptions(
        include_columns=None if columns is None else list(columns),
        column_types=types,
        null_values=MISSING,
        strings_can_be_null=True,
    )


def _parse(path: Path) -> Any:
    # a quoted value may hold a line break; without this a block boundary there would break rows
    # apart
    return pacsv.ParseOptions(delimiter=delimiter(path), newlines_in_values=True)


def delimiter(path: Path) -> str:
    """The commonest of , ; tab | in the header outside quotes."""
    with _explained(path), _bytes(path) as source:
        start = source.read(1 << 20)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        _not_utf8(path, "it looks like UTF-16")
    line = re.sub(rb'"[^"]*"', b"", start).split(b"\n", 1)[0]
    return max(",;\t|", key=lambda mark: line.count(mark.encode()))


def check_unique(path: Path, names: list[str]) -> None:
    """UserError when a column name occurs twice."""
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise UserError(f"{path.name}: the column name '{twice}' occurs more than once; rename one")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn pyarrow's errors into one line that says where and what to do."""
    try:
        yield
    except pa.ArrowKeyError as error:
        raise UserError(f"{path.name}: {error}") from None
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        _explain(path, str(error))
    except OSError as error:
        if path.suffix.lower() in _PACKED:
            raise UserError(
                f"{path.name} cannot be decompressed ({error}); it is damaged or not {path.suffix}"
            ) from None
        raise UserError(f"{path.name} cannot be read: {error}") from None


def _explain(path: Path, text: str) -> None:
    # first, because the value it shows may hold the words below; text fails only where it is not
    # UTF-8
    if match := re.match(r"In CSV column #(\d+):.*? conversion error to (?!string)", text):
        raise _TooNarrowError(int(match[1]))
    if "Empty CSV" in text:
        raise UserError(f"{path.name} is empty; it needs a header line and rows") from None
    if "UTF8" in text or "codec" in text or "utf-8" in text:
        _not_utf8(path, "a value")
    if match := re.search(r"Expected (\d+) columns, got (\d+)", text):
        _check_quotes(path)  # the line at fault is then another one
        raise UserError(_ragged(path, int(match[1]), int(match[2]))) from None
    if "straddling" in text:
        raise UserError(
            f"{path.name}: a row is longer than {BLOCK >> 20} MB; is a quote not closed?"
        ) from None
    raise UserError(f"{path.name} cannot be read as CSV: {text.splitlines()[0]}") from None


def _ragged(path: Path, expected: int, values: int) -> str:
    with _bytes(path) as source:
        lines = csv.reader(
            io.TextIOWrapper(source, errors="replace", newline=""), delimiter=delimiter(path)
        )
        for row in lines:
            if row and len(row) != expected:
                line, values = lines.line_num, len(row)
                return _ragged_line(path, f"line {line}", values, expected)
    return _ragged_line(path, "a line", values, expected)


def _ragged_line(path: Path, line: str, values: int, expected: int) -> str:
    return f"{path.name}: {line} has {values} values, the header {expected}; mend that line"


def _not_utf8(path: Path, what: str) -> None:
    where = ""
    with _bytes(path) as source:
        for number, line in enumerate(io.BufferedReader(source), start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                where = f", line {number}"
                break
    raise UserError(f"{path.name} is not UTF-8 ({what}{where}); save it as UTF-8") from None
