"""Numbers as people write them: a decimal comma or point, thousands, percent, currencies, units.

    1.234,50   1,234.50   1 234,50   1'234.50   12,5 %   € 5   5 EUR   (12.00)   12,00-   1,5E+03

Whether a comma or a point is the decimal mark is never guessed from one value: `forms` says what
each text could be, `parse` reads all texts of a column in one way and says which do not fit it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

POINT, COMMA = "point", "comma"
DECIMALS = (POINT, COMMA)
Mask = NDArray[np.bool_]
_CODES = "EUR|USD|GBP|CHF|JPY|SEK|NOK|DKK|PLN|CZK|HUF|INR|CNY|AUD|CAD|BRL|TRY|ZAR|MXN|KRW"
_MONEY = rf"(?:[A-Z]{{0,2}}\p{{Sc}}|{_CODES}|Fr\.|Rs\.?|kr\.?)"
# sign, currency, digits with their marks, power of ten, unit; accountants put a minus sign last or
# brackets around
_PARTS = (
    rf"^(?P<open>\(?)(?P<sign>[+-]?) ?(?P<money>{_MONEY}?) ?(?P<inner>[+-]?)"
    r"(?P<body>[0-9][0-9.,' ]*|[.,][0-9]+)(?P<power>(?:[eE][+-]?[0-9]+)?)"
    rf" ?(?P<unit>(?:{_MONEY}|[%‰]|\pL\pL{{0,3}})?)(?P<trail>-?)(?P<close>\)?)$"
)
_THOUSANDS = r"[1-9][0-9]{0,2}(?:%s[0-9]{3})+"
_GROUPED = "|".join(_THOUSANDS % mark for mark in (" ", "'"))
# lakh and crore: 12,34,567
_WHOLE = {
    POINT: rf"(?:[0-9]+|{_THOUSANDS % ','}|{_GROUPED}|[1-9][0-9]?(?:,[0-9]{{2}})+,[0-9]{{3}})",
    COMMA: rf"(?:[0-9]+|{_THOUSANDS % '[.]'}|{_GROUPED})",
}
_BODY = {
    POINT: rf"^(?:{_WHOLE[POINT]}(?:\.[0-9]+)?|\.[0-9]+)$",
    COMMA: rf"^(?:{_WHOLE[COMMA]}(?:,[0-9]+)?|,[0-9]+)$",
}
INFINITE = frozenset({"inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"} | {"∞", "-∞"})
# what stands for "no value" among numbers and dates, beside an empty cell
MARKS = frozenset(
    {"-", "--", "---", "–", "—", ".", "..", "...", "?", "na", "n/a", "#n/a", "nan", "nat", "<na>"}
    | {"none", "null", "nil", "k.a.", "k. a.", "#div/0!", "#value!", "#ref!", "#num!", "#name?"}
    | {"#null!", "#null", "#nv"}
)


def cell_texts(column: Any) -> Any:
    """Trimmed NFKC texts, minus signs and apostrophes in their plain form; null where empty."""
    texts = pc.utf8_normalize(column.cast(pa.string()), form="NFKC")
    texts = pc.replace_substring_regex(texts, "[\u2212\u2010\u2011]", "-")
    texts = pc.replace_substring_regex(texts, "[\u2019\u02bc\u00b4`]", "'")
    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def without_marks(texts: Any) -> tuple[Any, Any]:
    """Texts with null in the place of marks for "no value" and of infinities; and which texts were
    infinite."""
    lower = pc.utf8_lower(texts)
    infinite = pc.fill_null(pc.is_in(lower, pa.array(sorted(INFINITE))), False)
    gone = pc.or_(infinite, pc.fill_null(pc.is_in(lower, pa.array(sorted(MARKS))), False))
    return pc.if_else(gone, pa.scalar(None, pa.string()), texts), infinite


@dataclass(frozen=True)
class Forms:
    """What each of n texts could be; all arrays are (n,)."""

    fits: dict[str, Mask]  # decimal mark -> the text is a number written with it
    body: Any  # digits and marks, "" where the text is no number
    unit: Any  # "%", a currency, "kg"; "" for none

    @property
    def number(self) -> Mask:
        """Texts that are numbers in one way at least."""
        return self.fits[POINT] | self.fits[COMMA]

    def bodies(self, pattern: str) -> Mask:
        """Numbers whose digits and marks look like this."""
        return self.number & _mask(pc.match_substring_regex(self.body, pattern))


def forms(texts: Any) -> Forms:
    """Every reading that each of the texts (n,) allows."""
    parts = pc.extract_regex(texts, _PARTS)
    body = pc.fill_null(pc.utf8_trim_whitespace(parts.field("body")), "")
    unit = _unit(parts)
    closed = pc.equal(parts.field("open"), pc.utf8_slice_codeunits(_brackets(parts), 0, 1))
    one_unit = _mask(pc.or_(pc.equal(parts.field("money"), ""), pc.equal(parts.field("unit"), "")))
    sane = _mask(parts.is_valid()) & _mask(closed) & one_unit
    fits = {mark: sane & _mask(pc.match_substring_regex(body, _BODY[mark])) for mark in DECIMALS}
    return Forms(fits, body, unit)


def parse(texts: Any, decimal: str, unit: str) -> tuple[NDArray[np.float64], Mask]:
    """Texts (n,) as numbers, NaN where there is none, and which texts are not written this way.

    decimal   "point" or "comma"
    unit      what may stand beside a number; a percentage must say so
    """
    written = forms(texts)
    absent = _mask(texts.is_null())
    same_unit = _mask(pc.equal(written.unit, unit))
    bare = _mask(pc.equal(written.unit, ""))
    parts = pc.extract_regex(texts, _PARTS)
    body = written.body
    if decimal == COMMA:
        body = pc.replace_substring(pc.replace_substring_regex(body, "[. ']", ""), ",", ".")
    else:
        body = pc.replace_substring_regex(body, "[, ']", "")
    fits = written.fits[decimal]
    digits = pc.binary_join_element_wise(body, pc.fill_null(parts.field("power"), ""), "")
    kept = pc.if_else(pa.array(fits), digits, pa.scalar(None, pa.string()))
    values: NDArray[np.float64] = kept.cast(pa.float64()).to_numpy(zero_copy_only=False).copy()
    values[_negative(parts)] *= -1.0
    if unit in ("%", "‰"):
        # 12 among percentages may be 12 or 1200 percent; nought is nought
        bare &= values == 0
        values /= 100.0 if unit == "%" else 1000.0
    elif unit and not is_money(unit):
        bare[:] = False
    good = fits & (same_unit | bare)
    values[~good] = np.nan
    return values, ~good & ~absent


def is_money(unit: str) -> bool:
    matched = pc.match_substring_regex(pa.scalar(unit), f"^{_MONEY}$")
    return bool(matched.as_py())


def _unit(parts: Any) -> Any:
    """The one that is there of currency before and unit behind."""
    both = pc.binary_join_element_wise(parts.field("money"), parts.field("unit"), "")
    return pc.fill_null(both, "")


def _brackets(parts: Any) -> Any:
    """The bracket that must have opened the text, for the one that closes it."""
    return pc.replace_substring(parts.field("close"), ")", "(")


def _negative(parts: Any) -> Mask:
    signs = ("open", "sign", "inner", "trail")
    signs_of_minus = [_mask(pc.is_in(parts.field(name), pa.array(["-", "("]))) for name in signs]
    negative: Mask = np.logical_or.reduce(signs_of_minus)
    return negative


def _mask(column: Any) -> Mask:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    mask: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return mask.astype(np.bool_)
