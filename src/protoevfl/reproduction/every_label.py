"""Every label of the active party, and rows it shares with single others: what joining is worth to
one who has both."""

from protoevfl.reproduction.grid import IMAGES, TABLES, cell, smalls
from protoevfl.reproduction.spec import ACCURACY, AUC, Cell, Experiment, Field, Quantity, percent

OURS = ("proto_evfl", "proto_evfl one_way")
BASELINES = ("local", "laser", "fedcvt", "vanilla", "ss_vfl_c")
# cannot use other labels: run on those of shared rows
SHARED_ROWS_ONLY = ("vertical_logistic", "pooled_boosting")
OVERLAP = {"fashion_mnist": 400, "modelnet10": 200}
OWN_MODEL = {"model": "own_model"}

BRIER = Quantity("Brier", Field(("metrics.brier",)), digits=4)
ALONE = Quantity("alone", percent("alone.accuracy"), "%")
ALONE_AUC = Quantity("alone AUC", percent("alone.auc"), "%")
ALONE_BRIER = Quantity("alone Brier", Field(("metrics.alone.brier",)), digits=4)
GAIN = Quantity("gain over alone", percent("gain.difference"), "points")


def _cells(dataset: str) -> list[Cell]:
    cells = [cell(dataset, method, labels="all", priority=1) for method in (*OURS, *BASELINES)]
    cells.append(
        cell(dataset, "local", labels="all", priority=1, overrides=OWN_MODEL).tagged(
            method="local own_model"
        )
    )
    if dataset in TABLES:
        cells += [cell(dataset, method, priority=1) for method in SHARED_ROWS_ONLY]
    return cells


_labels = [each for dataset in (*IMAGES, *TABLES) for each in _cells(dataset)]

LABELS = Experiment(
    name="labels",
    title="Every label of the active party",
    place="Not in the paper",
    cells=tuple(_labels),
    quick=smalls(_labels, dataset="modelnet10") + smalls(_labels, "credit", dataset="credit"),
    rows=("dataset", "method"),
    columns=(),
    quantities=(ACCURACY, AUC, BRIER, ALONE, ALONE_AUC, ALONE_BRIER, GAIN),
    note="200 shared rows; the active party's pool is labelled as well. Alone: its own model on "
    "all its labels, nobody else; the gain is in accuracy for images, in AUC for tables. Vertical "
    "logistic regression and boosting on pooled columns cannot use labels of other rows than the "
    "shared ones.",
)

_overlap = [
    cell(dataset, method, labels="all", overlap=rows, priority=2)
    for dataset, rows in OVERLAP.items() for method in (*OURS, "laser")
]  # fmt: skip

OVERLAPS = Experiment(
    name="overlap",
    title="Further rows shared with single parties",
    place="Not in the paper",
    cells=tuple(_overlap),
    quick=smalls(_overlap, dataset="modelnet10"),
    rows=("dataset", "method"),
    columns=(),
    quantities=(ACCURACY, BRIER, ALONE, GAIN),
    note="As with every label, and 400 (ModelNet-10: 200) further rows of the active party are "
    "shared with each single other party.",
)
