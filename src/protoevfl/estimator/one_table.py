"""One table for all parties, as scikit-learn's tools give it: cut by columns, with the checks and
the words that these tools expect."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import issparse
from sklearn.utils.validation import column_or_1d, validate_data

from protoevfl.errors import UserError, WrongInputError, nearest
from protoevfl.rows.frames import Frame, Parties

# {party: its columns}, or how many parties the columns are dealt out to
Split = Mapping[str, Sequence[Any]] | int


@contextmanager
def value_errors() -> Iterator[None]:
    """What a user can mend is a ValueError, too: scikit-learn's tools expect one."""
    try:
        yield
    except UserError as error:
        raise WrongInputError(str(error)) from error.__cause__


def is_one_table(given: Any) -> bool:
    """Whether it is neither tables by party nor `Parties`; one kind of sparse matrix is a mapping."""
    return issparse(given) or not isinstance(given, Mapping | Parties)


def by_party(estimator: Any, table: Any, split: Split, reset: bool) -> dict[str, Any]:
    """{party: its columns of the table}.

    estimator   gets, or is compared with, `n_features_in_` and `feature_names_in_`
    reset       whether this is what the estimator is fitted with
    """
    is_frame = any(hasattr(table, name) for name in ("iloc", "to_arrow", "num_rows"))
    if is_frame:
        validate_data(estimator, table, reset=reset, skip_check_array=True)
        if not len(table):
            raise UserError("Found array with 0 sample(s): the table has no rows")
    else:
        table = validate_data(estimator, table, reset=reset, ensure_all_finite="allow-nan")
    columns = Frame("the table", table).tables[0].columns
    names = getattr(estimator, "feature_names_in_", None)
    parties = {}
    for party, places in _places(split, len(columns), names).items():
        own = [f"x{i}" for i in range(len(places))] if names is None else [names[p] for p in places]
        parties[party] = pa.table([columns[p] for p in places], own)
    return parties


def _places(split: Split, width: int, names: Any) -> dict[str, list[int]]:
    """Each party's columns by number."""
    if isinstance(split, int):
        if not 2 <= split <= width:
            raise UserError(
                f"parties={split} needs two or more parties with a column each, n_features={width}"
            )
        dealt = np.array_split(np.arange(width), split)
        return {f"party_{m}": places.tolist() for m, places in enumerate(dealt)}
    if not isinstance(split, Mapping) or len(split) < 2:
        raise UserError("parties must name two or more parties and the columns of each")
    known = {str(name): place for place, name in enumerate([] if names is None else names)}
    return {
        str(party): [_place(column, party, known, width) for column in columns]
        for party, columns in split.items()
    }


def _place(column: Any, party: str, known: Mapping[str, int], width: int) -> int:
    """The number of a column given by name or by number."""
    if isinstance(column, int | np.integer) and not isinstance(column, bool):
        if 0 <= column < width:
            return int(column)
        raise UserError(f"{party}: there is no column {column}; the table has {width} (0, 1, ...)")
    if column in known:
        return known[column]
    hint = nearest(str(column), known) if known else "this table has numbers, no names"
    raise UserError(f"{party}: the table has no column '{column}'; {hint}")


def tables_features(tables: Mapping[str, Any]) -> tuple[int, list[str] | None]:
    """How many columns several tables have, and their names (bank__income) where all have some."""
    frames = {party: Frame(party, table) for party, table in tables.items()}
    width = sum(
        len(frame.columns) if frame.shape is None else int(np.prod(frame.shape))
        for frame in frames.values()
    )
    if any(isinstance(table, np.ndarray | list) for table in tables.values()):
        return width, None
    names = [f"{party}__{column}" for party, frame in frames.items() for column in frame.columns]
    return width, names


def one_dimensional(labels: Any, estimator: Any) -> Any:
    """Labels as scikit-learn takes them: some must be given, and a column counts as a list, with a
    warning."""
    if labels is None:
        raise UserError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        )
    shape: tuple[int, ...] = getattr(labels, "shape", ())
    if len(shape) == 2 and shape[-1] == 1:
        return column_or_1d(labels, warn=True)
    return labels
