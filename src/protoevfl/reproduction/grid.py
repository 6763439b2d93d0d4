"""How cells are made: the names of the methods as rows, the lengths of the curves, and the small
cells of --quick."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from protoevfl.bench.world import RunConfig
from protoevfl.reproduction.spec import Cell

IMAGES = ("modelnet10", "fashion_mnist")
TABLES = ("credit", "adult")
ALIGNED = (200, 600, 1000)
SHOTS = 5  # rows of a rare class; the paper gives no number
ABSENT = 3  # desk in ModelNet-10, dress in Fashion-MNIST: the paper's "class 3", counted from 0

# what makes a run longer, by method: one dictionary of settings for each point of a curve
LENGTHS: dict[str, tuple[dict[str, int], ...]] = {
    "vanilla": tuple({"epochs": n} for n in (2, 5, 10, 20, 40, 80)),
    "ss_vfl_c": tuple({"epochs": n} for n in (2, 5, 10, 20, 40, 80)),
    "fedhssl": tuple({"pre.epochs": n, "epochs": n} for n in (2, 5, 10, 20, 40)),
    "proto_evfl": tuple({"rounds.count": n} for n in (0, 1, 2, 5, 10)),
}

# the same methods, trained for a moment: --quick shows that everything runs, not what it reaches
SPLIT = {"epochs": 2, "models": 1}
HEAD = {"head.epochs": 5, "head.members": 1}
QUICK: dict[str, dict[str, Any]] = {
    "local": SPLIT,
    "vanilla": SPLIT,
    "ss_vfl_i": {"moco.epochs": 1, **HEAD},
    "ss_vfl_c": {"moco.epochs": 1, **SPLIT},
    "fedhssl": {"pre.epochs": 1, **SPLIT},
    "one_shot": {"epochs": 1},
    "fedcvt": {"epochs": 1, "models": 1},
    "laser": SPLIT,
    "upper_bound": {"epochs": 1, "models": 1},
    "vertical_logistic": {"rounds": 5, "path_rounds": 2, "folds": 2},
    "pooled_boosting": {"max_iter": 5},
    "proto_evfl": {
        "warm.epochs": 1,
        "rounds.count": 1,
        "rounds.epochs": 1,
        "unseen.components": 4,
        **HEAD,
    },
}
# what is learnt from labels of rows that are not shared, on top
QUICK_LABELS: dict[str, dict[str, Any]] = {
    **{method: {"labelled.steps": 2} for method in ("vanilla", "ss_vfl_c", "fedcvt")},
    "local": {"labelled.steps": 2, "own.steps": 2},
    "laser": {"own_batches": 1},
    "proto_evfl": {"own.steps": 2},
}
QUICK_OVERLAP = 20
QUICK_ROWS = {"digits": (100, 100), "credit": (100, 300), "adult": (100, 300)}  # aligned, pool


def name_of(method: str, preset: str = "default") -> str:
    """The row of a method: a preset other than the default is named."""
    return method if preset == "default" else f"{method} {preset}"


def cell(
    dataset: str,
    method: str,
    aligned: int = 200,
    setting: str = "normal",
    classes: tuple[int, ...] = (),
    priority: int = 5,
    overrides: Mapping[str, Any] | None = None,
    pool: int | None = None,
    labels: str = "shared",
    overlap: int = 0,
    **tags: str,
) -> Cell:
    """A cell of a method "name" or "name preset"; extra tags come on top of the usual ones."""
    base, _, preset = method.partition(" ")
    if setting != "normal" and not classes:
        classes = (ABSENT,)
    config = RunConfig(
        dataset=dataset,
        method=base,
        preset=preset or "default",
        aligned=aligned,
        setting=setting,
        classes=classes,
        shots=SHOTS,
        parties=int(tags.get("parties", 4)),
        pool=pool,
        labels=labels,
        overlap=overlap,
        overrides=dict(overrides or {}),
    )
    usual = {"dataset": dataset, "aligned": str(aligned), "setting": setting, "method": method}
    return Cell({**usual, **tags}, config, priority)


def _small(source: Cell, dataset: str = "digits") -> Cell:
    """The quick version of a cell: few rows, moments of training, no paper number beside it."""
    aligned, pool = QUICK_ROWS[dataset]
    config = source.config
    # lengths of a curve stay, shortened; everything else of QUICK gives way to the cell's own
    # settings
    own = {
        key: min(value, 3) if _is_length(key) else value for key, value in config.overrides.items()
    }
    settings = {**QUICK.get(config.method, {}), **own}
    if config.preset == "one_way":
        settings["rounds.count"] = 0
    if config.labels == "all":
        settings |= QUICK_LABELS.get(config.method, {})
    tags = {**source.tags, "dataset": dataset, "aligned": str(aligned), "quick": "yes"}
    if "length" in tags:
        tags["length"] = str(min(int(tags["length"]), 3))
    shortened = replace(
        config,
        dataset=dataset,
        aligned=aligned,
        pool=pool,
        overrides=settings,
        shots=2,
        overlap=min(config.overlap, QUICK_OVERLAP),
    )
    return Cell(tags, shortened, source.priority)


def _is_length(key: str) -> bool:
    return key.rpartition(".")[2] in ("count", "epochs")


def smalls(sources: Iterable[Cell], on: str = "digits", /, **keep: str) -> tuple[Cell, ...]:
    """Quick versions of the cells whose tags are as asked, each place once."""
    cells: dict[tuple[tuple[str, str], ...], Cell] = {}
    for source in sources:
        if all(source.tags.get(key) == value for key, value in keep.items()):
            quick = _small(source, on)
            cells.setdefault(tuple(sorted(quick.tags.items())), quick)
    return tuple(cells.values())
