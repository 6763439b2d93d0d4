"""Train a method on prepared parties in this process, measure it on the rows kept aside, and keep
the run."""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from protoevfl.artifacts.owner import StoredOwner, TestRows
from protoevfl.artifacts.party import StoredParty
from protoevfl.core import decisions
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.federation import Federation, SimulatedRun, simulate
from protoevfl.federation.owner import LabelOwner, build_owner
from protoevfl.federation.party import Party
from protoevfl.method import Method, Report, plain_figures
from protoevfl.observer import SILENT, Observer, Together
from protoevfl.pipeline.prepare import OneParty
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.rows.ids import IdRules
from protoevfl.rows.table import Further, OwnRows, PartyTable
from protoevfl.settings.config import LabelConfig

SUBSETS = 6  # parties up to which training also reports every subset
# of the active party's own test rows that are kept where no own model needs all of them
OWN_ROWS = 2000
OWN_CELLS = 1 << 22


@dataclass
class Trained:
    """A trained federation, what it cost and what its method reported."""

    federation: Federation
    privacy: PrivacySettings
    query: dict[int, Tensor]  # embeddings (n_q, d) of the query rows by party
    cost: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def method(self) -> Method:
        return self.federation.methods[0]

    @property
    def owner(self) -> LabelOwner:
        return self.federation.owners[0]

    @property
    def parties(self) -> list[Party]:
        assert isinstance(self.federation.parties, InProcess)
        return list(self.federation.parties.parties.values())

    def stored_owner(
        self,
        names: Sequence[str],
        classes: Sequence[str],
        label: LabelConfig,
        test: Tensor,
        facts: dict[str, Any],
        own_query: Tensor | None = None,
    ) -> StoredOwner:
        """What is kept of the owner, with its figures; see `owner_without_figures`."""
        stored = self.owner_without_figures(names, classes, label, test, own_query)
        figures = measure(stored, stored.test)
        stored.metrics.update(figures, **self.cost, history=self.history, **facts)
        return stored

    def owner_without_figures(
        self,
        names: Sequence[str],
        classes: Sequence[str],
        label: LabelConfig,
        test: Tensor,
        own_query: Tensor | None = None,
    ) -> StoredOwner:
        """What is kept of the owner; the first len(test) query rows are the test rows with these
        labels.

        own_query   (n_q, ...) the active party's own view of the query rows: some of the test rows
                    among them are kept for the page about the run
        """
        owner = self.owner
        own = None if own_query is None else _few_rows(own_query[: len(test)])
        if owner.own is not None:
            own = owner.own.query[: len(test)].cpu()
        embeddings = {m: f[: len(test)].contiguous() for m, f in self.query.items()}
        rows = TestRows(embeddings, test, own)
        return StoredOwner.of(
            owner,
            self.method,
            self.privacy,
            tuple(names),
            tuple(classes),
            label.column,
            rows,
            label.rule(classes),
        )


def train(
    method: Method,
    tables: Sequence[PartyTable],
    labels: Tensor,
    classes: int,
    *,
    unseen: tuple[int, ...] = (),
    own: OwnRows | None = None,
    further: Further | None = None,
    privacy: PrivacySettings | None = None,
    seed: int = 0,
    device: str = "cpu",
    observer: Observer = SILENT,
) -> Trained:
    """Trains to the end; party 0 holds the labels (N_a,) of the rows that all parties share.

    own       every row of the active party with its label, where its own model is to be used
    further   rows that it shares with some of the others
    """
    privacy = privacy or PrivacySettings()
    owner = owner_of(method, labels, classes, len(tables), seed, unseen, own, further, device)
    owner.names = tuple(table.name for table in tables)
    runs = [SimulatedRun(tables, owner, seed)]
    federation = simulate(method, runs, privacy, engine="loop", device=device, observer=observer)
    return train_federation(federation, privacy, observer)


def owner_of(
    method: Method,
    labels: Tensor,
    classes: int,
    parties: int,
    seed: int,
    unseen: tuple[int, ...],
    own: OwnRows | None,
    further: Further | None,
    device: str = "cpu",
) -> LabelOwner:
    """The label owner, with every label of the active party where the method has a use for them;
    see `train`."""
    owner = build_owner(labels.to(device), classes, parties, seed, unseen=unseen)
    if own is not None and getattr(method, "uses_every_label", False):
        owner.own = replace(
            own, rows=own.rows.to(device), labels=own.labels.to(device), query=own.query.to(device)
        )
        if further is not None:
            owner.further = Further(further.labels.to(device), further.shared.to(device))
    return owner


def train_federation(
    federation: Federation, privacy: PrivacySettings, observer: Observer = SILENT
) -> Trained:
    """Trains to the end, wherever the parties are, and asks for their embeddings of the query
    rows."""
    history = _History()
    start = time.perf_counter()
    federation.train(Together([history, observer]))
    cost = {"seconds": time.perf_counter() - start, **federation.traffic()}
    del cost["epsilon"]
    (ledger,) = federation.border.ledgers
    if ledger.entries:
        cost["epsilon"] = {
            str(m): ledger.epsilon(m, "down") for m in federation.owners[0].parties[1:]
        }
    # asked at once: some methods settle their networks for good when they first embed
    query = {m: f.cpu() for m, f in federation.query_embeddings().items()}
    return Trained(federation, privacy, query, cost, history.reports)


def stored_party(
    part: OneParty,
    index: int,
    id_rules: IdRules,
    on_bad_ids: str,
    method: Method,
    privacy: PrivacySettings,
    state: Mapping[str, Tensor],
) -> StoredParty:
    """What is kept of one party; `index` is its place among the parties, `state` that of its
    network and memory."""
    return StoredParty(
        name=part.name,
        index=index,
        id_columns=part.file.config.id,
        id_rules=id_rules,
        on_bad_ids=on_bad_ids,
        encoder=part.encoder,
        method=method,
        privacy=privacy,
        dtype=str(part.table.pool.dtype).removeprefix("torch."),
        state={name: tensor.cpu() for name, tensor in state.items()},
        alignment=part.alignment,
        facts=part.facts,
    )


def _few_rows(rows: Tensor) -> Tensor:
    """The first rows, which are a random sample: test rows stand in the order of a hash."""
    most = min(OWN_ROWS, OWN_CELLS // max(1, rows[:1].numel()))
    return rows[:most].contiguous().cpu()


class _History(Observer):
    """Every report as JSON values."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    def report(self, report: Report, run: int = 0) -> None:
        place = {"phase": report.phase, "step": report.step, "steps": report.steps}
        self.reports.append({**place, **plain_figures(report)})


def measure(owner: StoredOwner, rows: TestRows) -> dict[str, Any]:
    """Figures on test rows: all parties, the active party alone, every subset, the commonest class,
    and the gain."""
    if not len(rows.labels):
        return {"rows": 0}
    # without a company that was away when the test rows were asked for
    everyone = tuple(sorted(rows.embeddings))
    joint = owner.subset(rows, everyone)
    figures: dict[str, Any] = {
        "rows": len(rows.labels),
        "test": owner.evaluate(joint, rows.labels),
        "majority": majority(owner, rows.labels),
    }
    if owner.has_own_model:
        alone = owner.subset(rows, (0,))
        figures["alone"] = owner.evaluate(alone, rows.labels)
        figures["gain"] = decisions.gain(joint, alone, rows.labels)
    if subsets := subsets_of(everyone):
        figures["subsets"] = {
            "+".join(owner.parties[m] for m in subset): short(
                owner.evaluate(owner.subset(rows, subset), rows.labels)
            )
            for subset in subsets
        }
    return figures


def subsets_of(parties: Sequence[int]) -> list[tuple[int, ...]]:
    """The subsets that training reports figures of: all, or none of many parties."""
    if len(parties) > SUBSETS:
        return []
    sizes = range(1, len(parties) + 1)
    return [subset for k in sizes for subset in itertools.combinations(parties, k)]


def majority(owner: StoredOwner, labels: Tensor) -> dict[str, Any]:
    """Always answering the commonest class of the training rows: the class, and how often that is
    right."""
    commonest = int(torch.bincount(owner.labels).argmax())
    return {
        "class": owner.classes[commonest],
        "accuracy": float((labels == commonest).double().mean()),
    }


def short(figures: dict[str, Any]) -> dict[str, Any]:
    """The few figures that every subset of parties is shown with."""
    return {name: figures[name] for name in ("accuracy", "balanced_accuracy", "auc", "brier")}
