"""From a configuration to records: build the parties, drive the method, evaluate. Several seeds go
in lockstep."""

import itertools
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

import protoevfl
from protoevfl import distributed
from protoevfl.core import decisions, metrics
from protoevfl.distributed import choose_device
from protoevfl.errors import UserError
from protoevfl.federation.federation import Federation, SimulatedRun, choose_engine, simulate
from protoevfl.federation.owner import Central, LabelOwner, build_owner
from protoevfl.method import Report, plain_figures
from protoevfl.methods import EVERY_LABEL, EVERY_OVERLAP
from protoevfl.methods.own_model import has_own_model
from protoevfl.observer import SILENT, Observer, Together
from protoevfl.rows import sources
from protoevfl.rows.attributes import read_attributes
from protoevfl.rows.split_counts import SplitSpec
from protoevfl.rows.splits import Split, encode_columns, labels_of, party_tables, split_dataset
from protoevfl.rows.table import Further, Labels, OwnRows, PartyTable
from protoevfl.settings.method_choice import CENTRAL, privacy_of
from protoevfl.settings.presets import build

LABELS = ("shared", "all")
ADDED = {"labels": "shared", "overlap": 0}  # fields that older records do not have


@dataclass(frozen=True)
class RunConfig:
    """One cell of an experiment; a seed makes it a run."""

    dataset: str = "digits"
    method: str = "proto_evfl"
    preset: str = "default"
    aligned: int = 200
    setting: str = "normal"
    classes: tuple[int, ...] = ()
    shots: int = 5
    parties: int = 4
    pool: int | None = None
    profile: str = "majority"
    open: bool = False  # zero_shot: the owner is not told which class has no label
    labels: str = "shared"  # or "all": the active party's pool is labelled too
    overlap: int = 0  # further rows it shares with each single other party
    # what names two and more unseen classes: nothing, "example", or a CSV file of attributes
    side: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.labels not in LABELS:
            raise UserError(f"labels is one of {', '.join(LABELS)}, not '{self.labels}'")
        if self.labels == "all" and self.method not in EVERY_LABEL:
            raise UserError(
                f"{self.method} cannot use labels of rows that are not shared; these can: "
                f"{', '.join(EVERY_LABEL)}"
            )
        if self.overlap < 0:
            raise UserError(f"an overlap is a number of rows, not {self.overlap}")
        if self.overlap and self.labels != "all":
            raise UserError("an overlap with single parties is of use with --labels all")
        if self.overlap and self.method not in EVERY_OVERLAP:
            raise UserError(
                f"{self.method} cannot use rows shared with single parties; these can: "
                f"{', '.join(EVERY_OVERLAP)}"
            )

    def split_spec(self) -> SplitSpec:
        return SplitSpec(
            dataset=self.dataset,
            parties=self.parties,
            aligned=self.aligned,
            pool=self.pool,
            profile=self.profile,
            setting=self.setting,
            classes=self.classes,
            shots=self.shots,
            overlap=self.overlap,
        )

    def identity(self) -> dict[str, Any]:
        """The part of a record that says which cell it belongs to."""
        facts = {**asdict(self), "classes": list(self.classes), "overrides": dict(self.overrides)}
        return {
            name: value
            for name, value in facts.items()
            if name not in ADDED or ADDED[name] != value
        }


@dataclass
class World:
    """Everything of one seed before training: split, tables, labels, owner."""

    split: Split
    tables: list[PartyTable]
    labels: Labels
    owner: LabelOwner
    seed: int

    @property
    def simulated(self) -> SimulatedRun:
        return SimulatedRun(self.tables, self.owner, self.seed)


# further figures of a trained run: its federation, its world, its number
Measure = Callable[[Federation, World, int], dict[str, Any]]


@lru_cache(maxsize=2)
def _dataset(name: str) -> Any:
    return sources.load(name)


def prepare(config: RunConfig, seed: int, device: str) -> World:
    """Loads, splits and encodes; the same for every method of a seed."""
    dataset = _dataset(config.dataset)
    split = split_dataset(dataset, config.split_spec(), seed)
    tables, labels = party_tables(dataset, split), labels_of(dataset, split)
    owner = build_owner(
        labels.aligned.to(device),
        labels.classes,
        config.parties,
        seed,
        unseen=() if config.open else labels.unseen,
        rare=labels.rare,
        open_classes=config.open,
    )
    _add_side_information(owner, config.side, labels)
    if config.labels == "all":
        owner.own, owner.further = _every_label(tables, labels, split, device)
    if config.method in CENTRAL:
        owner.central = _central(config, dataset, split, device)
    return World(split, tables, labels, owner, seed)


def _every_label(
    tables: Sequence[PartyTable], labels: Labels, split: Split, device: str
) -> tuple[OwnRows, Further | None]:
    """All rows of the active party with their labels, and the rows it shares with one other party
    each."""
    active = tables[0]
    count = len(split.further_of(0))  # the pool begins with them
    rows = torch.cat([active.aligned, active.pool]).to(device)
    own = OwnRows(
        rows,
        torch.cat([labels.aligned, labels.pools[0]]).to(device),
        active.query.to(device),
        len(active.aligned) + count,
    )
    if not count:
        return own, None
    holder = torch.arange(count) // split.spec.overlap + 1  # the other party that has the row
    shared = holder == torch.arange(len(tables))[:, None]  # (M, F)
    shared[0] = True
    return own, Further(labels.pools[0][:count].to(device), shared.to(device))


def _add_side_information(owner: LabelOwner, side: str, labels: Labels) -> None:
    """The first row to be predicted of each unseen class (a simulation knows it), or attributes."""
    if side == "example":
        first = {z: (labels.query == z).nonzero() for z in owner.unseen}
        owner.examples = {z: int(rows[0]) for z, rows in first.items() if len(rows)}
    elif side:
        owner.attributes = read_attributes(side, [str(z) for z in range(labels.classes)])


def _central(config: RunConfig, dataset: Any, split: Split, device: str) -> Central:
    """All rows of all pools with all columns and labels in one place."""
    rows = torch.cat([split.aligned, *split.pools])
    if isinstance(dataset.features, Tensor):
        pool, query = dataset.features[rows], dataset.features[split.test]
    else:
        values, _ = encode_columns(dataset.features, rows)
        pool, query = values[rows], values[split.test]
    return Central(pool.to(device), dataset.labels[rows].to(device), query.to(device))


def run(
    config: RunConfig,
    seeds: Sequence[int],
    *,
    device: str = "auto",
    engine: str = "auto",
    subsets: bool = False,
    observer: Observer = SILENT,
    also: Measure | None = None,
) -> list[dict[str, Any]]:
    """Runs a cell for several seeds in lockstep; one record per seed.

    engine     "auto", "loop" or "stacked" (federation/federation.py)
    subsets    also measure every subset of parties
    also       further figures of each trained run, for a benchmark of its own
    """
    if not seeds:
        return []
    device = choose_device(device)
    engine = choose_engine(engine)
    distributed.join(device)
    method = build(config.method, config.preset, config.dataset, config.overrides)
    privacy = privacy_of(config.method, config.preset, config.dataset, config.overrides)
    worlds = [prepare(config, seed, device) for seed in seeds]
    federation = simulate(
        method,
        [world.simulated for world in worlds],
        privacy,
        engine=engine,
        device=device,
        observer=observer,
    )
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    history = _History(len(seeds), device)
    federation.train(Together([history, observer]))
    traffic = [federation.traffic(r) for r in range(len(seeds))]  # before predictions add to it
    history.mark("end")
    metrics_of = _measured(config, federation, worlds, subsets)
    history.mark("predict")
    if also is not None:
        for r, world in enumerate(worlds):
            metrics_of[r] |= also(federation, world, r)
    hardware = {
        "seconds": history.total / len(seeds),
        "phases": history.phases,
        "lockstep_seeds": len(seeds),
        "engine": engine,
        "device": _device_name(device),
        "peak_memory_mb": _peak_memory_mb(device),
    }
    described = {
        "settings": asdict(method),  # type: ignore[call-overload]
        "privacy": {name: value for name, value in asdict(privacy).items() if value},
        "versions": versions(),
    }
    return [
        {
            **config.identity(),
            "seed": seed,
            "metrics": metrics_of[r],
            **traffic[r],
            **hardware,
            "split_hash": worlds[r].split.hash,
            "split": worlds[r].split.as_json(),
            "history": history.figures[r],
            **described,
        }
        for r, seed in enumerate(seeds)
    ]


def _measured(
    config: RunConfig, federation: Federation, worlds: Sequence[World], subsets: bool
) -> list[dict[str, Any]]:
    """Everything that is measured of each run on its query rows."""
    rows = evaluate(federation, worlds, subsets)
    pseudo_labels = _pseudo_labels(federation, worlds)
    joining = _joining(federation, worlds)
    for r in range(len(rows)):
        rows[r] |= pseudo_labels[r] | joining[r]
        if config.method == "proto_evfl" and worlds[r].owner.head is not None:
            rows[r]["gate"] = _gate_by_class(federation, worlds[r], r)
    return rows


def evaluate(
    federation: Federation, worlds: Sequence[World], subsets: bool
) -> list[dict[str, Any]]:
    """The metrics of each run; with `subsets` also the accuracy of every subset of parties."""
    parties = worlds[0].owner.parties
    everyone = [_close(p, w) for p, w in zip(federation.predict(), worlds, strict=True)]
    for p, world in zip(everyone, worlds, strict=True):
        if not bool(p.isfinite().all()):  # ranks of NaN would be measured as a perfect AUC
            raise UserError(
                f"seed {world.seed}: some predicted probabilities are not finite; the training "
                "diverged"
            )
    rows = [
        metrics.evaluate(p, w.labels.query, w.labels.unseen)
        for p, w in zip(everyone, worlds, strict=True)
    ]
    for row, world, p in zip(rows, worlds, everyone, strict=True):
        guess = p.argmax(1).cpu()
        row["rare_recall"] = _rare(row, world.labels.rare)
        row["matched_unseen"] = metrics.matched_accuracy(
            guess, world.labels.query, world.labels.unseen
        )
        row |= _probability_figures(p.cpu(), world)
        row["confusion"] = metrics.confusion(guess, world.labels.query, p.shape[1]).long().tolist()
        memory = world.owner.memory
        if (strength := memory.get("open_strength")) is not None:
            row["open_strength"] = float(strength)
            row["open_fires"] = bool(memory["open_fires"])
            row["pool_strength"] = memory["strength"].tolist()
        if (sureness := memory.get("unseen_sureness")) is not None:
            row["unseen_sureness"] = float(sureness)
        if world.owner.open:
            row["phantom_rate"] = float((guess == world.labels.classes).float().mean())
    if subsets:
        sizes = range(1, len(parties) + 1)
        for row in rows:
            row["subsets"] = {}
        for subset in itertools.chain.from_iterable(
            itertools.combinations(parties, k) for k in sizes
        ):
            name = "+".join(map(str, subset))
            for row, p, w in zip(rows, federation.predict(subset), worlds, strict=True):
                guess = _close(p, w).argmax(1).cpu()
                row["subsets"][name] = metrics.accuracy(guess, w.labels.query)
    return rows


def _probability_figures(p: Tensor, world: World) -> dict[str, Any]:
    """How honest probabilities (n, Z) are, and what choosing classes as if they were equally
    frequent would give.

    Class rates are those of the rows shared by all: with many classes pools have others than the
    test rows.
    """
    truth = world.labels.query
    classes = p.shape[1]
    rates = torch.bincount(world.owner.labels.cpu(), minlength=classes) / len(world.owner.labels)
    choice = decisions.balanced_choice(p, rates)
    return {
        "calibration_error": metrics.expected_calibration_error(p, truth),
        "brier": decisions.brier(p, truth),
        "mean_rates": p.double().mean(0).tolist(),
        "balanced_rule": {
            "accuracy": metrics.accuracy(choice, truth),
            "balanced_accuracy": metrics.balanced_accuracy(choice, truth, classes),
        },
    }


def _joining(federation: Federation, worlds: Sequence[World]) -> list[dict[str, Any]]:
    """The active party's own model beside the joint one, and what joining gains, where it has such
    a model."""
    if not all(has_own_model(world.owner) for world in worlds):
        return [{} for _ in worlds]
    rows = []
    for joint, own, world in zip(
        federation.predict(), federation.predict((0,)), worlds, strict=True
    ):
        truth = world.labels.query
        rows.append(
            {
                "alone": metrics.evaluate(own, truth, world.labels.unseen)
                | _probability_figures(own.cpu(), world),
                "gain": decisions.gain(joint, own, truth, world.seed),
            }
        )
    return rows


def _close(p: Tensor, world: World) -> Tensor:
    """In open mode the last column means "none of these": it is the one unseen class where there is
    exactly one."""
    if not world.owner.open or len(world.labels.unseen) != 1:
        return p
    known, none = p[:, :-1].clone(), p[:, -1]
    known[:, world.labels.unseen[0]] += none
    return known


def _pseudo_labels(federation: Federation, worlds: Sequence[World]) -> list[dict[str, Any]]:
    """Simulation only: how well each party names its own pool rows by the prototypes, and priors
    against the truth."""
    figures: list[dict[str, Any]] = [{} for _ in worlds]
    guess = getattr(federation.methods[0], "alone", None)
    linear = any("linear" in world.owner.memory for world in worlds)  # no prototypes, no extractors
    if guess is None or linear or federation.parties is None:
        return figures
    for addresses, cohort in federation.parties.members():
        owners = [worlds[r].owner for r, _ in addresses]
        mu = torch.stack(
            [_prototypes_at(o, m) for o, (_, m) in zip(owners, addresses, strict=True)]
        )
        shown = torch.stack(
            [o.memory["shown"][m] for o, (_, m) in zip(owners, addresses, strict=True)]
        )
        for (r, m), labels in zip(addresses, guess(cohort, mu, shown).cpu(), strict=True):
            truth, classes = worlds[r].labels.pools[m], worlds[r].labels.classes
            run_figures = figures[r]
            by_party = run_figures.setdefault("pseudo_label_accuracy", {})
            by_party[str(m)] = metrics.accuracy(labels, truth)
            rates = torch.bincount(labels, minlength=classes) / len(labels)
            priors = run_figures.setdefault(
                "priors", {"estimated": [[]] * len(worlds[r].owner.parties)}
            )
            priors["estimated"][m] = rates.tolist()
    return figures


def _prototypes_at(owner: LabelOwner, party: int) -> Tensor:
    """The prototypes (Z, d) a party has: the guard's release where there is one
    (privacy/policy.py)."""
    return owner.memory.get(f"guard.release.{party}", owner.memory["prototypes"][party]).to(
        owner.device
    )


def _gate_by_class(federation: Federation, world: World, run_: int) -> list[list[float]] | None:
    """Mean gate weight (M, Z) of each party on the rows of each true class; None for a head without
    a gate."""
    head: Any = world.owner.head
    if getattr(head, "gate", None) is None:
        return None
    blocks = federation.query_embeddings(run_)
    f = torch.stack([blocks[m] for m in world.owner.parties])[:, :2000].to(world.owner.device)
    with torch.no_grad():
        adapted = head.adapt(f.expand(len(head.keys), -1, -1, -1))
        weights = head.gates(adapted, None).mean(0).cpu()
    labels = world.labels.query[: weights.shape[1]]
    onehot = torch.nn.functional.one_hot(labels, world.labels.classes).float()
    share: list[list[float]] = (weights @ onehot / onehot.sum(0).clamp(min=1)).tolist()
    return share


def _rare(row: Mapping[str, Any], rare: tuple[int, ...]) -> float | None:
    recalls = [row["per_class_recall"][z] for z in rare if row["per_class_recall"][z] is not None]
    return sum(recalls) / len(recalls) if recalls else None


class _History(Observer):
    """The figures of each run's reports, and seconds by phase with the device caught up before each
    reading."""

    def __init__(self, runs: int, device: str) -> None:
        self.device = device
        self.figures: list[list[dict[str, Any]]] = [[] for _ in range(runs)]
        self.phases: dict[str, float] = {}
        self.start = self.last = self._now()

    def report(self, report: Report, run: int = 0) -> None:
        if report.values:
            place = {"phase": report.phase, "step": report.step}
            self.figures[run].append({**place, **plain_figures(report)})
        self.mark(report.phase)

    def mark(self, phase: str) -> None:
        now = self._now()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self.last
        self.last = now

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    @property
    def total(self) -> float:
        return self.last - self.start


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"cpu x{torch.get_num_threads()}"


def _peak_memory_mb(device: str) -> float:
    """Peak GPU memory on a GPU, else peak resident memory of this process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def versions() -> dict[str, str]:
    return {
        "protoevfl": protoevfl.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
