"""The search behind the presets: a few settings of each method, compared on held-out *aligned*
rows, not on test rows.

Every fold hides a quarter of the aligned rows from training (labels and all) and predicts them;
pools stay as they are. Each method gets the same number of trials: first its preset as it is, then
draws from its space below. The score is the accuracy, for two classes the mean of accuracy and AUC;
the best mean over seeds and folds wins. Seeds start at 100, so that the rows of reported runs
(seeds 0, 1, ...) are drawn apart.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from protoevfl.bench.world import RunConfig, World, prepare
from protoevfl.core import metrics
from protoevfl.core import random as rnd
from protoevfl.distributed import choose_device
from protoevfl.errors import UserError
from protoevfl.federation.federation import simulate
from protoevfl.federation.owner import Central
from protoevfl.observer import SILENT, Observer
from protoevfl.rows.table import OwnRows
from protoevfl.settings.method_choice import privacy_of
from protoevfl.settings.presets import TABLES, build

Space = Mapping[str, Sequence[Any]]
SEEDS = (100, 101)
FOLDS = 4

_SCRATCH: dict[str, Space] = {
    "images": {
        "epochs": (40, 80, 120),
        "lr": (1e-3, 3e-3),
        "augment": (0.0, 0.3),
        "mixup": (0.0, 1.0),
    },
    "tables": {
        "epochs": (3, 5, 10, 20),
        "lr": (3e-4, 1e-3, 3e-3),
        "augment": (0.0, 0.2),
        "mixup": (0.0, 1.0),
    },
}
_TUNED: dict[str, Space] = {
    "images": {"epochs": (20, 40, 80), "lr": (3e-4, 1e-3), "augment": (0.0, 0.3)},
    "tables": {"epochs": (3, 5, 10), "lr": (3e-4, 1e-3), "mixup": (0.0, 1.0)},
}
_FROZEN: Space = {"head.epochs": (30, 60, 100), "head.hidden": (0, 128), "head.noise": (0.3, 1.0)}
_RIDGE: Space = {"strength": (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)}
_TREES: Space = {
    "learning_rate": (0.03, 0.06, 0.1),
    "max_leaf_nodes": (4, 8, 31),
    "min_samples_leaf": (5, 20),
}
# where labels of rows that are not shared are used as well, only what is learnt from them is searched
_LABELLED: Space = {"labelled.steps": (300, 1000, 3000), "labelled.lr": (3e-4, 1e-3)}
_LABELLED_IMAGES: Space = {**_LABELLED, "labelled.augment": (0.0, 0.3)}
EVERY_LABEL: dict[str, dict[str, Space]] = {
    **{
        method: {"images": _LABELLED_IMAGES, "tables": _LABELLED}
        for method in ("local", "vanilla", "ss_vfl_c", "fedcvt")
    },
    "laser": {  # 16 batches of images to one take four times as long as any other method's trial
        "images": {"own_batches": (1, 4), "lr": (3e-4, 1e-3, 3e-3)},
        "tables": {"own_batches": (1, 4, 16), "lr": (3e-4, 1e-3, 3e-3)},
    },
}


def _more(base: Mapping[str, Space], images: Space, tables: Space) -> dict[str, Space]:
    return {"images": {**base["images"], **images}, "tables": {**base["tables"], **tables}}


SPACES: dict[str, dict[str, Space]] = {
    "local": _SCRATCH,
    "vanilla": _SCRATCH,
    "laser": _more(_SCRATCH, {"weights": ("subsets", "sizes")}, {"weights": ("subsets", "sizes")}),
    "fedcvt": _more(_SCRATCH, {"unlabelled": (0.1, 0.5)}, {"unlabelled": (0.1, 0.5)}),
    "ss_vfl_i": {
        "images": {**_FROZEN, "moco.momentum": (0.99, 0.999), "moco.strength": (0.6, 1.0)},
        "tables": {**_FROZEN, "moco.epochs": (5, 15)},
    },
    "ss_vfl_c": _more(
        _TUNED,
        {"moco.momentum": (0.99, 0.999), "moco.strength": (0.6, 1.0)},
        {"moco.epochs": (5, 15)},
    ),
    "fedhssl": _more(
        _TUNED,
        {"pre.optimizer": ("sgd", "adamw"), "pre.views": ("crop", "warm")},
        {"pre.epochs": (5, 15)},
    ),
    "one_shot": {
        "images": {**_FROZEN, "epochs": (10, 20), "threshold": (0.8, 0.95), "weak": (0.0, 0.3)},
        "tables": {**_FROZEN, "epochs": (1, 3, 10), "threshold": (0.8, 0.95)},
    },
    "upper_bound": {
        "images": {
            "epochs": (15, 30),
            "lr": (1e-3, 2e-3),
            "augment": (0.0, 0.2),
            "mixup": (0.0, 1.0),
        },
        "tables": {"epochs": (3, 5, 10), "lr": (3e-4, 1e-3), "weight_decay": (1e-2, 1e-1)},
    },
    "vertical_logistic": {"images": _RIDGE, "tables": _RIDGE},
    "pooled_boosting": {"images": _TREES, "tables": _TREES},
    "proto_evfl": {
        "images": {
            **_FROZEN,
            "rounds.count": (0, 2),
            "warm.epochs": (40, 80),
            "warm.strength": (0.6, 1.0),
        },
        "tables": {**_FROZEN, "rounds.count": (0, 2), "warm.epochs": (5, 15)},
    },
}


@dataclass(frozen=True)
class Trial:
    """One setting and what it reached on held-out aligned rows, mean over seeds and folds."""

    overrides: Mapping[str, Any]
    score: float
    accuracy: float
    balanced_accuracy: float
    auc: float | None
    folds: tuple[float, ...]  # the score of each seed and fold
    seconds: float

    def line(self, number: int) -> str:
        """It in one line, as trial `number` of a search."""
        settings = " ".join(f"{name}={value}" for name, value in self.overrides.items())
        score = f"{100 * self.score:.1f} % on held-out aligned rows, {self.seconds:.0f} s"
        return f"trial {number}: score {score}, {settings or 'the preset as it is'}"


@dataclass(frozen=True)
class Tuned:
    """All trials of a search; the first is the preset as it was."""

    method: str
    dataset: str
    aligned: int
    labels: str
    seeds: tuple[int, ...]
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        return max(self.trials, key=lambda trial: trial.score)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "best": asdict(self.best)}


def candidates(
    method: str, dataset: str, budget: int, labels: str = "shared"
) -> list[dict[str, Any]]:
    """The settings to try: {} (the preset), then different draws from the method's space.

    With all labels the space is what is learnt from the further ones; the rest stays as the preset
    has it.

    >>> candidates("vanilla", "digits", 3)[0]
    {}
    """
    if method not in SPACES:
        raise UserError(f"no search space for '{method}'; there are {', '.join(SPACES)}")
    spaces = SPACES[method]
    if labels == "all":
        spaces = EVERY_LABEL.get(method, spaces)
    space = spaces["tables" if dataset in TABLES else "images"]
    settings: list[dict[str, Any]] = [{}]
    for draw in range(50 * budget):
        if len(settings) >= budget:
            break
        drawn = {
            name: options[rnd.key("tune", draw, name) % len(options)]
            for name, options in space.items()
        }
        if drawn not in settings:
            settings.append(drawn)
    return settings[:budget]


def _fold_worlds(config: RunConfig, seed: int, device: str, folds: int = FOLDS) -> list[World]:
    """The seed's world once a fold, with that fold's aligned rows moved to the rows to be
    predicted."""
    world = prepare(config, seed, device)
    return [_fold(world, fold, folds) for fold in range(folds)]


def _fold(world: World, fold: int, folds: int) -> World:
    labels = world.labels.aligned
    same = labels[:, None] == labels
    rank = same.tril(-1).sum(1)  # place of a row within its class; rows are in random order already
    held = rank % folds == fold
    if bool(held.all()) or not bool(held.any()):
        raise UserError(f"{len(labels)} aligned rows are too few for {folds} folds")
    tables = [replace(t, aligned=t.aligned[~held], query=t.aligned[held]) for t in world.tables]
    inside = replace(world.labels, aligned=labels[~held], query=labels[held])
    device = world.owner.device
    owner = replace(
        world.owner,
        labels=inside.aligned.to(device),
        central=_central(world, held.to(device)),
        own=_own(world, held.to(device)),
        head=None,
        memory={},
        cache={},
    )
    return replace(world, tables=tables, labels=inside, owner=owner)


def _central(world: World, held: torch.Tensor) -> Central | None:
    """The pooled rows begin with the aligned ones; those held out become the query."""
    whole = world.owner.central
    if whole is None:
        return None
    keep = torch.ones(len(whole.pool), dtype=torch.bool, device=held.device)
    keep[: len(held)] = ~held
    return Central(whole.pool[keep], whole.labels[keep], whole.pool[: len(held)][held])


def _own(world: World, held: torch.Tensor) -> OwnRows | None:
    """The active party's rows begin with the aligned ones; those held out become the query."""
    own = world.owner.own
    if own is None:
        return None
    keep = torch.ones(len(own.labels), dtype=torch.bool, device=held.device)
    keep[: len(held)] = ~held
    return OwnRows(
        own.rows[keep],
        own.labels[keep],
        own.rows[: len(held)][held],
        own.shared_rows - int(held.sum()),
    )


def trial(
    config: RunConfig,
    seeds: Sequence[int],
    device: str,
    engine: str = "stacked",
    folds: int = FOLDS,
) -> Trial:
    """Trains and scores one setting on all seeds and folds in lockstep."""
    start = time.perf_counter()
    method = build(config.method, config.preset, config.dataset, config.overrides)
    worlds = [world for seed in seeds for world in _fold_worlds(config, seed, device, folds)]
    privacy = privacy_of(config.method, config.preset, config.dataset, config.overrides)
    runs = [world.simulated for world in worlds]
    federation = simulate(method, runs, privacy, engine=engine, device=device)
    federation.train()
    measured = [
        metrics.evaluate(p, w.labels.query, w.labels.unseen)
        for p, w in zip(federation.predict(), worlds, strict=True)
    ]

    def mean(name: str) -> float:
        return float(sum(row[name] for row in measured)) / len(measured)

    two = measured[0]["auc"] is not None
    scores = tuple(
        (row["accuracy"] + row["auc"]) / 2 if two else row["accuracy"] for row in measured
    )
    return Trial(
        overrides=dict(config.overrides),
        score=sum(scores) / len(scores),
        accuracy=mean("accuracy"),
        balanced_accuracy=mean("balanced_accuracy"),
        auc=mean("auc") if two else None,
        folds=scores,
        seconds=time.perf_counter() - start,
    )


def tune(
    method: str,
    dataset: str,
    budget: int = 6,
    seeds: Sequence[int] = SEEDS,
    device: str = "auto",
    *,
    aligned: int = 200,
    parties: int = 4,
    pool: int | None = None,
    labels: str = "shared",
    folds: int = FOLDS,
    observer: Observer = SILENT,
) -> Tuned:
    """Runs the search and says how each trial ended."""
    if budget < 1:
        raise UserError(f"a search needs at least one trial, not {budget}")
    device = choose_device(device)
    trials: list[Trial] = []
    settings = candidates(method, dataset, budget, labels)
    for overrides in settings:
        config = RunConfig(
            dataset,
            method,
            aligned=aligned,
            parties=parties,
            pool=pool,
            labels=labels,
            overrides=overrides,
        )
        try:
            trials.append(trial(config, seeds, device, folds=folds))
        except KeyboardInterrupt:
            observer.note(
                f"stopped after {len(trials)} of {len(settings)} trials; nothing was written"
            )
            raise
        observer.finished(trials[-1].line(len(trials)), len(trials), len(settings))
    return Tuned(method, dataset, aligned, labels, tuple(seeds), tuple(trials))
