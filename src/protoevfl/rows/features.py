"""A party's own columns as float32 features, learnt on its training rows and restored exactly from
JSON.

    number     z = clip((g(x) - mean) / std),
               g(x) = x or, for heavy tails, sign(x) log(1 + |x| / scale)
               missing: the median, and a 0/1 feature beside it where training rows had missing
               values
    category   one 0/1 feature a value, rare values share "other", missing has its own;
               a value that training never saw counts as "other", and is all zero where there is
               none

Dates count as days, true/false as 1/0. Fitting is one pass over batches. Category counts and
missing values are exact; mean, std, median and skewness come from a sample of up to 65,536 rows
that depends on row numbers only, so that the result is the same for every batch size (and exact for
smaller files).

The pass is `survey.Survey`; `Number` and `Category` are what it learns of a column, plain values that
go to JSON and back, and `TableEncoder` applies them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protoevfl.errors import UserError
from protoevfl.rows import drift
from protoevfl.rows.columns import as_numbers, as_texts
from protoevfl.rows.readings import Reading
from protoevfl.rows.survey import Category, FeatureSpec, Number, Survey, curve

VERSION = 2
_READABLE = (1, 2)  # version 1 has no readings
CLIP = 10.0  # standard deviations


class TableEncoder:
    """`fit` once on own training rows, then `transform` any table with the same columns."""

    def __init__(
        self,
        codes: Iterable[Number | Category],
        dropped: Mapping[str, str],
        pictures: Mapping[str, drift.Picture] | None = None,
    ) -> None:
        self.codes = tuple(codes)
        self.dropped = dict(dropped)  # column -> why it carries no information
        # column -> what it looked like in training; none in runs of earlier versions
        kept = pictures or {}
        self.pictures = {c.name: kept[c.name] for c in self.codes if c.name in kept}
        # column -> what a person should know of how it was read; of fitting, not kept
        self.remarks: dict[str, str] = {}
        ends = np.cumsum([len(code.labels) for code in self.codes], dtype=int).tolist()
        # [start, end) of each column
        self.spans: tuple[tuple[int, int], ...] = tuple(zip([0, *ends[:-1]], ends))
        self.width: int = ends[-1] if ends else 0  # F
        self.names = [label for code in self.codes for label in code.labels]  # (F,)
        self._numbers = [
            (code, span[0])
            for code, span in zip(self.codes, self.spans)
            if isinstance(code, Number)
        ]
        self._categories = [
            (code, span[0])
            for code, span in zip(self.codes, self.spans)
            if isinstance(code, Category)
        ]

    @classmethod
    def fit(
        cls,
        batches: Any,
        spec: FeatureSpec,
        where: str = "the table",
        keep: NDArray[np.bool_] | None = None,
        readings: Mapping[str, Reading] | None = None,
    ) -> "TableEncoder":
        """Learn from a pyarrow Table or an iterable of batches.

        keep       (rows,) selects the training rows
        readings   of text columns that are numbers or dates, as `recognise` finds them
        """
        survey = Survey(spec, where, readings)
        start = 0
        for batch in [batches] if hasattr(batches, "num_columns") else batches:
            survey.add(batch, start, None if keep is None else keep[start : start + batch.num_rows])
            start += batch.num_rows
        encoder = cls(*survey.codes(), drift.pictures_of(survey))
        encoder.remarks = {
            name: f"{count:,} infinite values count as missing"
            for name, count in survey.infinite.items()
            if count and name not in encoder.dropped
        }
        return encoder

    def survey(self, where: str) -> Survey:
        """To look at new rows of the same columns with."""
        categories = tuple(code.name for code, _ in self._categories)
        numbers = tuple(code.name for code, _ in self._numbers)
        return Survey(FeatureSpec(tuple(self.columns), categories, numbers), where, self.readings)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Which features are numbers; the others are 0 or 1."""
        return tuple(at for _, at in self._numbers)

    @property
    def columns(self) -> list[str]:
        """The columns that `transform` reads."""
        return [code.name for code in self.codes]

    @property
    def readings(self) -> dict[str, Reading]:
        """How text columns that are numbers or dates are written; a CSV reader must leave them as
        texts."""
        return {code.name: code.reading for code, _ in self._numbers if code.reading is not None}

    def transform(
        self, batches: Any, rows: int | None = None, where: str = "the table"
    ) -> NDArray[np.float32]:
        """(n, F) float32 of a pyarrow Table, or of batches with `rows` rows in all (filled in
        place)."""
        whole = hasattr(batches, "num_columns")
        out = np.zeros((batches.num_rows if whole else rows or 0, self.width), np.float32)
        start = 0
        for batch in [batches] if whole else batches:
            self._fill(out[start : start + batch.num_rows], batch, where, start)
            start += batch.num_rows
        if start != len(out):
            raise UserError(
                f"{where} has {start} rows, {len(out)} were expected; did the file change?"
            )
        return out

    def _fill(self, out: NDArray[np.float32], batch: Any, where: str, start: int) -> None:
        for number, at in self._numbers:
            x = as_numbers(batch.column(number.name), number.name, where, start, number.reading)
            gone = np.isnan(x)
            x[gone] = number.median
            out[:, at] = np.clip((curve(x, number.scale) - number.mean) / number.std, -CLIP, CLIP)
            if number.missing:
                out[:, at + 1] = gone
        for category, at in self._categories:
            slots = category.slots(as_texts(batch.column(category.name), category.name))
            known = slots >= 0
            out[np.flatnonzero(known), at + slots[known]] = 1.0

    def state(self) -> dict[str, Any]:
        """All of it as JSON values; `from_state` restores it exactly."""
        kinds = [{"kind": type(code).__name__, **asdict(code)} for code in self.codes]
        return {
            "version": VERSION,
            "columns": kinds,
            "dropped": self.dropped,
            "pictures": drift.pictures_state(self.pictures),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "TableEncoder":
        if state.get("version") not in _READABLE:
            raise UserError(
                f"the encoder is of version {state.get('version')}, this program reads {VERSION}"
            )
        codes: list[Number | Category] = []
        for column in state["columns"]:
            fields = {key: value for key, value in column.items() if key != "kind"}
            if column["kind"] == "Number":
                reading = fields.pop("reading", None)
                codes.append(
                    Number(**fields, reading=None if reading is None else Reading(**reading))
                )
            else:
                codes.append(Category(**{**fields, "values": tuple(fields["values"])}))
        return cls(codes, state["dropped"], drift.pictures_from(state.get("pictures", {})))
