"""How the texts of a column are read as numbers or dates: found once over the whole column, kept
with the encoder, and applied to every later file."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protoevfl.errors import UserError
from protoevfl.rows import date_formats, number_formats
from protoevfl.rows.number_formats import cell_texts, without_marks

_ORDERS = {
    date_formats.DAY_FIRST: "dates with the day first",
    date_formats.MONTH_FIRST: "dates with the month first",
    date_formats.YEAR_FIRST: "dates with the year first",
    date_formats.NAMED: "dates with the month's name",
}


@dataclass(frozen=True)
class Reading:
    """One way of reading a column of texts; plain values, for JSON."""

    kind: Literal["number", "date"]
    decimal: str = ""  # of a number: "point" or "comma"
    unit: str = ""  # of a number: "%", a currency, "kg"
    order: str = ""  # of a date: "day_first", "month_first", "year_first" or "named"

    @property
    def words(self) -> str:
        """What values are read as, for a person.

        >>> Reading("number", "comma", "%").words
        'percentages with a decimal comma'
        """
        if self.kind == "date":
            return _ORDERS[self.order]
        noun = "percentages" if self.unit == "%" else "numbers"
        unit = f" in {self.unit}" if self.unit not in ("", "%") else ""
        return f"{noun}{unit} with a decimal {self.decimal}"

    def parse(self, texts: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Texts (n,) of `cell_texts` as numbers, NaN where missing or infinite; and which texts are
        not written this way."""
        values, _ = without_marks(texts)
        if self.kind == "date":
            return date_formats.parse(values, self.order)
        return number_formats.parse(values, self.decimal, self.unit)

    def numbers(self, column: Any, name: str, where: str, start: int) -> NDArray[np.float64]:
        """A column of texts as numbers; UserError names the first value that is written in another
        way."""
        texts = cell_texts(column)
        values, bad = self.parse(texts)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise UserError(
                f"{where}: column '{name}' holds {_shown(texts[row].as_py())} (row "
                f"{start + row + 1}); it is read as {self.words}: write it so, or exclude the "
                "column and train again"
            )
        return values

    def example(self, text: str) -> str:
        """The text and what it is read as."""
        value = float(self.parse(cell_texts(pa.array([text])))[0][0])
        if self.kind == "number":
            return f"{_shown(text)} is {value:.10g}"
        day = np.datetime64(int(np.floor(value)), "D")
        return f"{_shown(text)} is {day}"


def _shown(text: str) -> str:
    return f"'{text[:20]}'"
