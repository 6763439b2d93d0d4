"""From a configuration to records: build the parties, drive the method, evaluate. Several seeds go in lockstep."""

import itertools
import platform
import resource
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

import protoevfl
from protoevfl import distributed
from protoevfl.core import metrics
from protoevfl.core import random as rnd
from protoevfl.distributed import choose_device
from protoevfl.errors import UserError
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.guards import defend
from protoevfl.federation.lockstep import Address, Engine, drive
from protoevfl.federation.middleware import QueryCache
from protoevfl.federation.owner import Central, LabelOwner
from protoevfl.federation.party import Party
from protoevfl.messages import Embed, Embeddings
from protoevfl.method import Method, Report
from protoevfl.rows import sources
from protoevfl.rows.attributes import read_attributes
from protoevfl.rows.splits import Split, SplitSpec, split_dataset
from protoevfl.rows.table import Labels, PartyTable, labels_of, party_tables
from protoevfl.settings.method_choice import privacy_of
from protoevfl.settings.presets import build

Watch = Callable[[int, Report], None]


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
    side: str = ""  # what names two and more unseen classes: nothing, "example", or a CSV file of attributes
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def split_spec(self) -> SplitSpec:
        return SplitSpec(
            dataset=self.dataset, parties=self.parties, aligned=self.aligned, pool=self.pool, profile=self.profile,
            setting=self.setting, classes=self.classes, shots=self.shots,
        )  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """The part of a record that says which cell it belongs to."""
        return {**asdict(self), "classes": list(self.classes), "overrides": dict(self.overrides)}


@dataclass
class World:
    """Everything of one seed before training: split, tables, labels, owner."""

    split: Split
    tables: list[PartyTable]
    labels: Labels
    owner: LabelOwner
    keys: dict[int, int]


@lru_cache(maxsize=2)
def _dataset(name: str) -> Any:
    return sources.load(name)


def prepare(config: RunConfig, seed: int, device: str) -> World:
    """Loads, splits and encodes; the same for every method of a seed."""
    dataset = _dataset(config.dataset)
    split = split_dataset(dataset, config.split_spec(), seed)
    tables, labels = party_tables(dataset, split), labels_of(dataset, split)
    owner = LabelOwner(
        labels=labels.aligned.to(device), classes=labels.classes, parties=tuple(range(config.parties)),
        key=rnd.key(seed, "owner"), unseen=() if config.open else labels.unseen, rare=labels.rare, open=config.open,
    )  # fmt: skip
    tell(owner, config.side, labels)
    if config.method == "upper_bound":
        owner.central = central(config, dataset, split, device)
    return World(split, tables, labels, owner, {m: rnd.key(seed, "party", m) for m in owner.parties})


def tell(owner: LabelOwner, side: str, labels: Labels) -> None:
    """Side information: the first row to be predicted of each unseen class (a simulation knows it), or attributes."""
    if side == "example":
        first = {z: (labels.query == z).nonzero() for z in owner.unseen}
        owner.examples = {z: int(rows[0]) for z, rows in first.items() if len(rows)}
    elif side:
        owner.attributes = read_attributes(side, [str(z) for z in range(labels.classes)])


def central(config: RunConfig, dataset: Any, split: Split, device: str) -> Central:
    """All rows of all pools with all columns and labels in one place."""
    rows = torch.cat([split.aligned, *split.pools])
    if isinstance(dataset.features, Tensor):
        pool, query = dataset.features[rows], dataset.features[split.test]
    else:
        from protoevfl.rows.encode import encode_table

        values = encode_table(dataset.features, rows).values
        pool, query = values[rows], values[split.test]
    return Central(pool.to(device), dataset.labels[rows].to(device), query.to(device))


def engine_for(method: Method, worlds: Sequence[World], kind: str, device: str) -> InProcess | Stacked:
    """`loop` or `stacked`; parties are addressed by (run, party)."""
    tables = {(r, m): w.tables[m] for r, w in enumerate(worlds) for m in w.owner.parties}
    keys = {(r, m): w.keys[m] for r, w in enumerate(worlds) for m in w.owner.parties}
    if kind == "stacked":
        return Stacked(method, tables, keys, device)
    return InProcess({a: Party(method, tables[a], keys[a], device) for a in tables})


def choose_engine(kind: str, device: str) -> str:
    """auto: stacked everywhere it was measured to be no slower (docs/performance.md)."""
    if kind not in ("auto", "loop", "stacked"):
        raise UserError(f"unknown engine '{kind}'; there are auto, loop, stacked")
    return "stacked" if kind == "auto" else kind


def run(
    config: RunConfig,
    seeds: Sequence[int],
    *,
    device: str = "auto",
    engine: str = "auto",
    subsets: bool = False,
    watch: Watch | None = None,
) -> list[dict[str, Any]]:
    """Runs a cell for several seeds in lockstep; one record a seed."""
    if not seeds:
        return []
    device = choose_device(device)
    kind = choose_engine(engine, device)
    distributed.join(device)
    method = build(config.method, config.preset, config.dataset, config.overrides)
    worlds = [prepare(config, seed, device) for seed in seeds]
    parties = engine_for(method, worlds, kind, device)
    if watch is not None:
        for _, cohort in parties.members():
            cohort.progress = lambda phase, step, steps: watch(0, Report(phase, step, steps))
    privacy = privacy_of(config.method, config.preset, config.dataset, config.overrides)
    metered, border, ledgers_spent = defend(parties, [w.owner for w in worlds], seeds, privacy)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    clock = _Clock(device)
    history: list[list[Report]] = [[] for _ in seeds]
    for index, report in _drive([method.train(w.owner) for w in worlds], border):
        history[index].append(report)
        clock.mark(report.phase)
        if watch is not None:
            watch(index, report)
    ledgers = [metered.ledger(r) for r in range(len(seeds))]
    rounds = [metered.rounds[r] for r in range(len(seeds))]
    clock.mark("end")
    cached = QueryCache(border)
    found = evaluate(method, worlds, cached, subsets)
    for r, (row, extra) in enumerate(zip(found, alone(method, worlds, parties), strict=True)):
        row |= extra
        if config.method == "proto_evfl":
            row["gate"] = gate_by_class(worlds[r], cached, r)
    clock.mark("predict")
    return [
        {
            **config.identity(),
            "seed": seed,
            "metrics": found[r],
            "bytes": ledgers[r],
            "rounds": rounds[r],
            "seconds": clock.total / len(seeds),
            "phases": clock.phases,
            "lockstep_seeds": len(seeds),
            "engine": kind,
            "device": torch.cuda.get_device_name() if device == "cuda" else f"cpu x{torch.get_num_threads()}",
            "peak_memory_mb": peak_memory_mb(device),
            "split_hash": worlds[r].split.hash,
            "split": worlds[r].split.as_json(),
            "history": [{"phase": h.phase, "step": h.step, **_plain(h.values)} for h in history[r] if h.values],
            "settings": asdict(method),  # type: ignore[call-overload]
            "privacy": {name: value for name, value in asdict(privacy).items() if value},
            "epsilon": ledgers_spent[r].summary(),
            "versions": versions(),
        }
        for r, seed in enumerate(seeds)
    ]


def _drive(talks: Sequence[Generator[Any, Any, Any]], engine: Engine) -> Generator[tuple[int, Report], None, None]:
    yield from drive(talks, engine)


def ask(method: Method, worlds: Sequence[World], engine: Engine, present: tuple[int, ...]) -> list[Tensor]:
    """Class probabilities of every run's query rows from the parties present."""
    from protoevfl.federation.lockstep import finish

    return finish([method.predict(w.owner, present) for w in worlds], engine)


def evaluate(method: Method, worlds: Sequence[World], engine: Engine, subsets: bool) -> list[dict[str, Any]]:
    """The metrics of each run; with `subsets` also the accuracy of every subset of parties."""
    parties = worlds[0].owner.parties
    everyone = [close(p, w) for p, w in zip(ask(method, worlds, engine, parties), worlds, strict=True)]
    found = [metrics.evaluate(p, w.labels.query, w.labels.unseen) for p, w in zip(everyone, worlds, strict=True)]
    for row, world, p in zip(found, worlds, everyone, strict=True):
        guess = p.argmax(1).cpu()
        row["rare_recall"] = _rare(row, world.labels.rare)
        row["matched_unseen"] = metrics.matched_accuracy(guess, world.labels.query, world.labels.unseen)
        row["calibration_error"] = metrics.expected_calibration_error(p.cpu(), world.labels.query)
        row["confusion"] = metrics.confusion(guess, world.labels.query, p.shape[1]).long().tolist()
        if (strength := world.owner.memory.get("open_strength")) is not None:
            row["open_strength"], row["open_fires"] = float(strength), bool(world.owner.memory["open_fires"])
            row["pool_strength"] = world.owner.memory["strength"].tolist()
        if world.owner.open:
            row["phantom_rate"] = float((guess == world.labels.classes).float().mean())
    if subsets:
        sizes = range(1, len(parties) + 1)
        for row in found:
            row["subsets"] = {}
        for some in itertools.chain.from_iterable(itertools.combinations(parties, k) for k in sizes):
            for row, p, w in zip(found, ask(method, worlds, engine, some), worlds, strict=True):
                guess = close(p, w).argmax(1).cpu()
                row["subsets"]["+".join(map(str, some))] = metrics.accuracy(guess, w.labels.query)
    return found


def close(p: Tensor, world: World) -> Tensor:
    """In open mode the last column means "none of these": it is the one unseen class where there is exactly one."""
    if not world.owner.open or len(world.labels.unseen) != 1:
        return p
    known, none = p[:, :-1].clone(), p[:, -1]
    known[:, world.labels.unseen[0]] += none
    return known


def alone(method: Method, worlds: Sequence[World], parties: InProcess | Stacked) -> list[dict[str, Any]]:
    """Simulation only: how well each party names its own pool rows by the prototypes, and priors against the truth."""
    found: list[dict[str, Any]] = [{} for _ in worlds]
    guess = getattr(method, "alone", None)
    if guess is None:
        return found
    for addresses, cohort in parties.members():
        owners = [worlds[r].owner for r, _ in addresses]
        mu = torch.stack([_told(o, m) for o, (_, m) in zip(owners, addresses, strict=True)])
        shown = torch.stack([o.memory["shown"][m] for o, (_, m) in zip(owners, addresses, strict=True)])
        for (r, m), labels in zip(addresses, guess(cohort, mu, shown).cpu(), strict=True):
            truth, classes = worlds[r].labels.pools[m], worlds[r].labels.classes
            found[r].setdefault("pseudo_label_accuracy", {})[str(m)] = metrics.accuracy(labels, truth)
            rates = torch.bincount(labels, minlength=classes) / len(labels)
            found[r].setdefault("priors", {"estimated": [[]] * len(worlds[r].owner.parties)})
            found[r]["priors"]["estimated"][m] = rates.tolist()
    return found


def _told(owner: LabelOwner, party: int) -> Tensor:
    """The prototypes (Z, d) a party has: the guard's release where there is one (privacy/policy.py)."""
    return owner.memory.get(f"guard.release.{party}", owner.memory["prototypes"][party]).to(owner.device)


def gate_by_class(world: World, engine: Engine, run_: int) -> list[list[float]] | None:
    """Mean gate weight (M, Z) of each party on the rows of each true class; None for a head without a gate."""
    head = world.owner.head
    if getattr(head, "gate", None) is None:
        return None
    replies = engine.exchange({(run_, m): Embed("query") for m in world.owner.parties})
    blocks = [reply.values for reply in replies.values() if isinstance(reply, Embeddings)]
    f = torch.stack(blocks)[:, :2000].to(world.owner.device)
    with torch.no_grad():
        adapted = head.adapt(f.expand(len(head.keys), -1, -1, -1))  # type: ignore[union-attr, operator, arg-type]
        weights = head.gates(adapted, None).mean(0).cpu()  # type: ignore[union-attr, operator]
    labels = world.labels.query[: weights.shape[1]]
    onehot = torch.nn.functional.one_hot(labels, world.labels.classes).float()
    share: list[list[float]] = (weights @ onehot / onehot.sum(0).clamp(min=1)).tolist()
    return share


def _rare(row: Mapping[str, Any], rare: tuple[int, ...]) -> float | None:
    recalls = [row["per_class_recall"][z] for z in rare if row["per_class_recall"][z] is not None]
    return sum(recalls) / len(recalls) if recalls else None


class _Clock:
    """Seconds by phase, with the device caught up before each reading."""

    def __init__(self, device: str) -> None:
        self.device, self.phases = device, dict[str, float]()
        self.start = self.last = self._now()

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def mark(self, phase: str) -> None:
        now = self._now()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self.last
        self.last = now

    @property
    def total(self) -> float:
        return self.last - self.start


def peak_memory_mb(device: str) -> float:
    """Peak GPU memory on a GPU, else peak resident memory of this process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def versions() -> dict[str, str]:
    return {"protoevfl": protoevfl.__version__, "torch": torch.__version__, "python": platform.python_version()}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.tolist() if isinstance(v, Tensor) else v for k, v in values.items()}


__all__ = ["Address", "RunConfig", "World", "ask", "engine_for", "evaluate", "prepare", "run"]
