"""What is allowed and yet most likely a mistake: a column that gives the label away, ids that are
row numbers."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from protoevfl.rows.ids import Ids

PERFECT = 0.98  # balanced accuracy of a single column above which it is suspected
FEWEST = 20  # rows below which nothing is suspected
_ROWS, _CELLS = 2000, 2_000_000


def rows_to_look_at(labels: NDArray[np.int64], columns: int) -> NDArray[np.int64]:
    """Some labelled rows of (n,) labels, the same for the same file; fewer where there are many
    columns."""
    labelled = np.flatnonzero(labels >= 0)
    most = max(300, min(_ROWS, _CELLS // max(1, columns)))
    if len(labelled) <= most:
        return labelled
    return np.sort(np.random.default_rng(0).choice(labelled, most, replace=False))


def giving_away(
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    spans: Mapping[str, tuple[int, int]],
) -> dict[str, float]:
    """Columns from which alone the label can be told, and the balanced accuracy on rows that a
    small decision tree has not seen.

    x        (n, F) encoded rows
    labels   (n,) their classes
    spans    column -> its features [start, end)
    """
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.tree import DecisionTreeClassifier

    counts = np.bincount(labels)
    usable = counts[labels] >= 4
    x, labels = x[usable], labels[usable]
    classes = np.unique(labels)
    if len(labels) < FEWEST or len(classes) < 2:
        return {}
    half = np.zeros(len(labels), np.bool_)
    for z in classes:
        half[np.flatnonzero(labels == z)[::2]] = True
    suspects = {}
    for column, (start, end) in spans.items():
        tree = DecisionTreeClassifier(max_leaf_nodes=max(8, 2 * len(classes)), random_state=0)
        tree.fit(x[half, start:end], labels[half])
        score = balanced_accuracy_score(labels[~half], tree.predict(x[~half, start:end]))
        if score >= PERFECT:
            suspects[column] = float(score)
    return suspects


def are_row_numbers(ids: Ids) -> bool:
    """Whether the ids of a file count its rows, from 0 or 1."""
    if len(ids.values) < FEWEST or ids.counts.dropped:
        return False
    return any(_counts_from(ids.values, first) for first in (0, 1))


def _counts_from(values: Sequence[str], first: int) -> bool:
    return all(value == str(number) for number, value in enumerate(values, start=first))
