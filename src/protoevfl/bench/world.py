"""What a cell of an experiment is, and everything of one seed before training."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.federation.federation import SimulatedRun
from protoevfl.federation.owner import Central, LabelOwner, build_owner
from protoevfl.methods import EVERY_LABEL, EVERY_OVERLAP
from protoevfl.rows import sources
from protoevfl.rows.attributes import read_attributes
from protoevfl.rows.split_counts import SplitSpec
from protoevfl.rows.splits import Split, encode_columns, labels_of, party_tables, split_dataset
from protoevfl.rows.table import Further, Labels, OwnRows, PartyTable
from protoevfl.settings.method_choice import CENTRAL

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
        owner.central = _central(dataset, split, device)
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


def _central(dataset: Any, split: Split, device: str) -> Central:
    """All rows of all pools with all columns and labels in one place."""
    rows = torch.cat([split.aligned, *split.pools])
    if isinstance(dataset.features, Tensor):
        pool, query = dataset.features[rows], dataset.features[split.test]
    else:
        values, _ = encode_columns(dataset.features, rows)
        pool, query = values[rows], values[split.test]
    return Central(pool.to(device), dataset.labels[rows].to(device), query.to(device))
