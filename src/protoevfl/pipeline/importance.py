"""Which of the active party's own columns matter: permutation importance on its own test rows.

    importance of a column = measure(rows as they are) - measure(rows with this column shuffled)

The measure is AUC for two classes and accuracy for more. A column is shuffled with all that was made
of it (its categories, its mark of a missing value), the party embeds the rows again, and the model
answers; the other parties' part of a row stays as it was. Only the active party's columns can be
looked at: nobody else's rows are in a run directory of its. A column that another one repeats
counts little, for the model reads the other one.
"""

from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from protoevfl.artifacts.owner import StoredOwner, TestRows
from protoevfl.artifacts.party import StoredParty
from protoevfl.core import decisions
from protoevfl.observer import SILENT, Observer
from protoevfl.rows.features import TableEncoder

MOST_ROWS = 1000  # looked at
REPEATS = 3  # times that each column is shuffled
WIDE = 20  # columns from which once must do: ten classes take half a second each time
MOST_COLUMNS = 200  # looked at, the first ones of the file


@dataclass(frozen=True)
class Importance:
    """What shuffling one column costs, as fractions (0.02 is 2 points)."""

    column: str
    joint: float  # of the joint model, with its 95 % interval
    low: float
    high: float
    alone: float | None = None  # of the own model, where there is one


def own_columns(
    owner: StoredOwner, party: StoredParty, rows: TestRows, observer: Observer = SILENT
) -> list[Importance]:
    """Importances of the active party's columns, the largest first; [] for pictures and where its
    own rows are not at hand."""
    encoder = party.encoder
    if rows.own is None or not isinstance(encoder, TableEncoder):
        return []
    count = min(len(rows.own), MOST_ROWS)
    rows = TestRows(
        {m: f[:count] for m, f in rows.embeddings.items()}, rows.labels[:count], rows.own[:count]
    )
    if len(set(rows.labels.tolist())) < 2:
        return []
    everyone = tuple(sorted(rows.embeddings))
    models = {"joint": everyone, **({"alone": (0,)} if owner.has_own_model else {})}
    before = {name: owner.subset(rows, parties) for name, parties in models.items()}
    columns = list(zip(encoder.columns, encoder.spans, strict=True))[:MOST_COLUMNS]
    repeats = REPEATS if len(columns) < WIDE else 1
    random = torch.Generator().manual_seed(0)
    importances = []
    for done, (column, span) in enumerate(columns):
        observer.progress("shuffling own columns", done, len(columns))
        gains: dict[str, list[dict[str, float]]] = {name: [] for name in models}
        for _ in range(repeats):
            shuffled = _shuffled(party, rows, span, random)
            for name, parties in models.items():
                after = owner.subset(shuffled, parties)
                gains[name].append(_lost(before[name], after, rows.labels))
        joint = {key: fmean(gain[key] for gain in gains["joint"]) for key in gains["joint"][0]}
        alone = None
        if "alone" in gains:
            alone = fmean(gain["difference"] for gain in gains["alone"])
        importances.append(
            Importance(column, joint["difference"], joint["low"], joint["high"], alone)
        )
    return sorted(importances, key=lambda one: -one.joint)


def _shuffled(
    party: StoredParty, rows: TestRows, span: tuple[int, int], random: torch.Generator
) -> TestRows:
    """The rows with the features [start, end) of one column dealt out anew among them."""
    assert rows.own is not None
    start, end = span
    own = rows.own.clone()
    own[:, start:end] = own[torch.randperm(len(own), generator=random), start:end]
    return TestRows({**rows.embeddings, 0: party.embed([own])}, rows.labels, own)


def _lost(before: Tensor, after: Tensor, labels: Tensor) -> dict[str, float]:
    gain = decisions.gain(before, after, labels)
    return {name: float(gain[name]) for name in ("difference", "low", "high")}
