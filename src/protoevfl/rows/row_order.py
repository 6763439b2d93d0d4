"""Tables with an index (pandas) are matched by it: the same rows in another order are put into the
order of the first table, other rows are refused.

Tables without an index (polars, pyarrow, numpy) are matched by the place of their rows.
"""

from collections.abc import Mapping
from typing import Any

from protoevfl.errors import UserError

BY_PLACE = "where row i is the same customer everywhere, drop the index: reset_index(drop=True)"


def _has_index(table: Any) -> bool:
    """Whether rows have names of their own (a frame or series of pandas)."""
    return hasattr(table, "iloc")


def in_one_order(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with their rows in the order of the first one that has an index."""
    lengths = {len(table) for table in tables.values() if _has_index(table)}
    if len(lengths) != 1:
        return dict(tables)  # nothing to match, or refused for its number of rows
    indexed = [name for name, table in tables.items() if _has_index(table)]
    first, index = indexed[0], tables[indexed[0]].index
    moved = [name for name in indexed if not tables[name].index.equals(index)]
    unmarked = [name for name in tables if name not in indexed]
    if moved and unmarked:
        raise UserError(
            f"{moved[0]} has another index than {first}, and {unmarked[0]} has none to be matched "
            f"by; give all of them one, or {BY_PLACE}"
        )
    return {
        name: _followed(table, index, name, first) if name in moved else table
        for name, table in tables.items()
    }


def in_order_of(values: Any, tables: Mapping[str, Any], what: str) -> Any:
    """Values per row in the order of the tables, matched by their index where both have one.

    tables   in one order already
    what     what the values are, for errors
    """
    reference = next((name for name, table in tables.items() if _has_index(table)), None)
    if reference is None or not _has_index(values):
        return values
    index = tables[reference].index
    if len(values) != len(index) or values.index.equals(index):
        return values
    return _followed(values, index, what, reference)


def masks_in_order(
    present: Mapping[str, Any] | None, given: Mapping[str, Any], ordered: Mapping[str, Any]
) -> dict[str, Any]:
    """Which rows a party has, in the order of the tables.

    given, ordered   the tables before and after `in_one_order`

    A mask without an index of a table that was put into another order could mean either order.
    """
    masks = {}
    for name, mask in (present or {}).items():
        moved = name in given and given[name] is not ordered[name]
        if moved and not _has_index(mask):
            raise UserError(
                f"present['{name}'] must be a Series with the index of {name}, whose rows are in "
                "another order than those of the first table"
            )
        masks[name] = in_order_of(mask, ordered, f"present['{name}']")
    return masks


def _followed(values: Any, index: Any, name: str, reference: str) -> Any:
    """Rows in the order of an index that has the same names.

    name, reference   of the values and of what the index belongs to, for errors
    """
    for whose, labels in ((name, values.index), (reference, index)):
        if not labels.is_unique:
            twice = labels[labels.duplicated()][0]
            raise UserError(
                f"{name} and {reference} cannot be matched by their index: {whose} has '{twice}' "
                f"twice; {BY_PLACE}"
            )
    places = values.index.get_indexer(index)
    if (places < 0).any():
        missing = index[places < 0]
        raise UserError(
            f"{name} lacks {len(missing)} of the {len(index)} rows of {reference} by its index, "
            f"such as '{missing[0]}'; give the same rows, or {BY_PLACE}"
        )
    return values.iloc[places]
