"""Which text columns of a party are numbers or dates, and how they are written, from every row.

A column has one way of writing: it is read as numbers (or dates) only if all of its values fit.
What its own values leave open ("1,234", 01/02/2020) is settled by the setting `decimal` or `dates`,
then by the other columns of the file, then by its own round and small numbers; a guess is said.
A column that looks like numbers and does not fit is an error, never quietly a category.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protoevfl.rows.column_forms import ColumnForms, Verdict
from protoevfl.rows.columns import is_text, type_problem
from protoevfl.rows.date_formats import DAY_FIRST, MONTH_FIRST
from protoevfl.rows.number_formats import COMMA, POINT
from protoevfl.rows.readings import Reading
from protoevfl.rows.survey import FeatureSpec

Batches = Callable[[Sequence[str], Sequence[str]], Iterator[Any]]


@dataclass(frozen=True)
class Recognition:
    """What was found; every text is for a person and starts with the column's name."""

    readings: dict[str, Reading] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)  # a value and what it is read as
    errors: dict[str, str] = field(default_factory=dict)  # columns that cannot be used as they are
    remarks: dict[str, str] = field(default_factory=dict)  # no cell is shown in these

    @property
    def text(self) -> tuple[str, ...]:
        """Columns that a CSV reader must leave as texts."""
        return tuple(self.readings)


def recognise(
    batches: Batches, spec: FeatureSpec, is_typed: bool, delimiter: str = ""
) -> Recognition:
    """Look at all rows of a source.

    batches     (columns, those to be left as texts) -> its record batches
    is_typed    whether types are the author's (Parquet, data frames) or a reader's guess (CSV)
    delimiter   of a CSV file; a semicolon speaks for decimal commas
    """
    columns = [name for name in spec.features if name not in spec.categorical]
    schema = next(iter(batches(spec.features, ())), pa.table({})).schema
    texts = [name for name in columns if _is_plain_text(schema, name)]
    floats = [] if is_typed else [name for name in columns if _is_float(schema, name)]
    forms = {name: ColumnForms(name) for name in texts}
    points = {name: _Points() for name in floats}
    start = 0
    for batch in batches([*texts, *floats], ()) if texts or floats else ():
        for name, column in forms.items():
            column.add(batch.column(name), start)
        for name, seen in points.items():
            seen.add(batch.column(name))
        start += batch.num_rows
    doubtful = [name for name, seen in points.items() if seen.could_be_thousands]
    again = {name: ColumnForms(name) for name in doubtful}
    start = 0
    for batch in batches(doubtful, doubtful) if doubtful else ():
        for name, column in again.items():
            column.add(batch.column(name), start)
        start += batch.num_rows
    decided_points = any(seen.fractions and not seen.could_be_thousands for seen in points.values())
    recognition = _decided(forms, again, spec, is_typed, delimiter, decided_points)
    for name in spec.features:
        if problem := type_problem(schema.field(name).type):
            recognition.errors[name] = problem
    return recognition


def _decided(
    forms: dict[str, ColumnForms],
    doubtful: dict[str, ColumnForms],
    spec: FeatureSpec,
    is_typed: bool,
    delimiter: str,
    decided_points: bool,
) -> Recognition:
    """Every column's verdict, those that are sure being evidence for the others."""
    columns = {**forms, **doubtful}
    marks = {c.sure_decimal for c in columns.values()} | ({POINT} if decided_points else set())
    orders = {c.sure_order for c in columns.values()}
    file_decimal = spec.decimal or _only(marks & {POINT, COMMA})
    file_order = spec.dates or _only(orders & {DAY_FIRST, MONTH_FIRST})
    guess = COMMA if delimiter == ";" else POINT
    recognition = Recognition()
    for name, column in columns.items():
        typed = is_typed and name not in spec.numeric
        verdict = column.verdict(
            file_decimal,
            file_order,
            guess=POINT if name in doubtful else guess,
            fewest=spec.max_categories if typed else 0,
            is_listed=name in spec.numeric,
        )
        if name in doubtful and verdict.reading == Reading("number", POINT) and not verdict.remark:
            continue  # the plain number that the reader took it for
        _enter(recognition, name, column, verdict)
    return recognition


def _enter(recognition: Recognition, name: str, column: ColumnForms, verdict: Verdict) -> None:
    if verdict.error:
        recognition.errors[name] = verdict.error
        return
    remarks = [text for text in (verdict.remark, column.gone if verdict.reading else "") if text]
    if remarks:
        recognition.remarks[name] = "; ".join(remarks)
    if verdict.reading is not None:
        recognition.readings[name] = verdict.reading
        recognition.examples[name] = verdict.reading.example(column.telling)


class _Points:
    """Numbers of a CSV column that hold a point, which may stand between thousands: 1.234."""

    def __init__(self) -> None:
        self.fractions = False
        self.could_be = True

    @property
    def could_be_thousands(self) -> bool:
        return self.fractions and self.could_be

    def add(self, column: Any) -> None:
        x = column.to_numpy(zero_copy_only=False)
        x = np.abs(x[np.isfinite(x)])
        fractional = x != np.floor(x)
        self.fractions |= bool(fractional.any())
        if self.could_be:
            self.could_be = bool(_is_thousandth(x[fractional]).all())


def _is_thousandth(x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """From 1 to 1000, three decimals at most."""
    scaled = x * 1000
    close: NDArray[np.bool_] = np.abs(scaled - np.rint(scaled)) < 1e-6
    return close & (x >= 1) & (x < 1000)


def _is_plain_text(schema: Any, name: str) -> bool:
    kind = schema.field(name).type
    return any(test(kind) for test in is_text)


def _is_float(schema: Any, name: str) -> bool:
    return bool(pa.types.is_floating(schema.field(name).type))


def _only(candidates: set[str]) -> str:
    """The one that was found; none where columns differ."""
    return next(iter(candidates)) if len(candidates) == 1 else ""
