"""pyarrow columns as numbers, texts or images, whatever type the file stored them in."""

import re
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protoevfl.errors import UserError
from protoevfl.rows.readings import Reading

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DAY = {"s": 86_400, "ms": 86_400e3, "us": 86_400e6, "ns": 86_400e9}
is_text = pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view


def looks_numeric(value: str) -> bool:
    return _NUMBER.fullmatch(value) is not None


def is_category(
    kind: Any, name: str, categorical: Collection[str], numeric: Collection[str]
) -> bool:
    """True: one feature a value; False: a number. UserError for a type that is neither."""
    if problem := type_problem(kind):
        raise UserError(f"column '{name}' {problem}")
    texts = any(test(_value_type(kind)) for test in is_text)
    return name in categorical or (texts and name not in numeric)


def type_problem(kind: Any) -> str:
    """Why a column of this type cannot be a feature, "" if it can."""
    types, kind = pa.types, _value_type(kind)
    is_number = (
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    )
    is_other = types.is_temporal(kind) or types.is_null(kind) or any(t(kind) for t in is_text)
    if is_number or is_other:
        return ""
    return f"has the type {kind}; exclude it, or declare it as an image"


def _value_type(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def as_numbers(
    column: Any, name: str, where: str, start: int = 0, reading: Reading | None = None
) -> NDArray[np.float64]:
    """(n,) float64, NaN where missing or infinite; dates as days since 1970, true as 1.

    start     the row number of the first value, for the error about a text that is no number
    reading   how texts are written; None: plain numbers with a decimal point
    """
    column = _flat(column)
    kind, types = column.type, pa.types
    if reading is not None and any(test(kind) for test in is_text):
        return reading.numbers(column, name, where, start)
    if any(test(kind) for test in is_text):
        values = _parsed(column, name, where, start)
    elif types.is_date(kind):
        values = column.cast(pa.date32()).cast(pa.int32()).cast(pa.float64())
    elif types.is_timestamp(kind) or types.is_duration(kind) or types.is_time(kind):
        values = pc.divide(
            column.cast(pa.int32() if types.is_time32(kind) else pa.int64()).cast(pa.float64()),
            _DAY[kind.unit],
        )
    elif types.is_boolean(kind):
        values = column.cast(pa.int8()).cast(pa.float64())
    else:
        values = column.cast(pa.float64(), safe=False)
    # a copy of our own
    x: NDArray[np.float64] = values.to_numpy(zero_copy_only=False).astype(np.float64)
    x[np.isinf(x)] = np.nan
    return x


def as_texts(column: Any, name: str) -> Any:
    """pyarrow string array, trimmed and NFKC; whole numbers as in ids, so that 1, 1.0 and "1" are
    one category."""
    column = _flat(column)
    kind = column.type
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, kind))  # NaN is missing
    try:
        texts = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UserError(
            f"column '{name}' of type {kind} cannot be a category; exclude it"
        ) from None
    texts = pc.utf8_trim_whitespace(pc.utf8_normalize(texts, form="NFKC"))
    texts = pc.replace_substring_regex(texts, r"^([+-]?[0-9]+)\.0+$", r"\1")
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def as_images(column: Any, shape: tuple[int, ...], name: str) -> NDArray[Any]:
    """(n, C, H, W), uint8 kept and anything else as float32, of a list column with C*H*W values a
    row; C is 1 for an (H, W) shape."""
    column = _flat(column)
    shape = (1, *shape) if len(shape) == 2 else shape
    size, kind = int(np.prod(shape)), column.type
    if not (
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    ):
        raise UserError(
            f"column '{name}' has the type {kind}; an image column is a list of numbers in Parquet"
        )
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise UserError(
            f"column '{name}': the image of row {row + 1} is missing; leave such rows out"
        )
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if (lengths != size).any():
        row = int(np.flatnonzero(lengths != size)[0])
        wanted = " x ".join(map(str, shape))
        raise UserError(
            f"column '{name}': row {row + 1} has {lengths[row]} values, the shape {wanted} needs "
            f"{size}"
        )
    values = column.flatten()
    kept = values if values.type == pa.uint8() else values.cast(pa.float32())
    pixels: NDArray[Any] = kept.to_numpy(zero_copy_only=False)
    if not np.isfinite(pixels).all():
        raise UserError(f"column '{name}' has pixels that are missing or not finite")
    return pixels.reshape(len(column), *shape)


def _flat(column: Any) -> Any:
    """One array: chunks joined, dictionaries decoded."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _parsed(column: Any, name: str, where: str, start: int) -> Any:
    texts = as_texts(column, name)
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        good = pc.fill_null(pc.match_substring_regex(texts, f"^{_NUMBER.pattern}$"), True).to_numpy(
            zero_copy_only=False
        )
        row = int(np.flatnonzero(~good)[0]) if not good.all() else 0
        value = (texts[row].as_py() or "")[:20]
        raise UserError(
            f"{where}: column '{name}' holds '{value}' (row {start + row + 1}); it is read as plain "
            "numbers with a decimal point"
        ) from None
