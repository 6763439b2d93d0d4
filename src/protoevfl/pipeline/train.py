"""Train a method on prepared parties in this process, measure it on the rows kept aside, and keep the run.

    engine:  parties -> each party's guard -> bytes counted -> the label owner's guard -> method

The guards (privacy settings) stand exactly where a deployment has its border, so that a simulation is trained on what
would really arrive.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from protoevfl.artifacts.owner import StoredOwner, TestRows
from protoevfl.core import metrics
from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.guards import defend
from protoevfl.federation.lockstep import drive
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Party
from protoevfl.messages import Embed, Message, values
from protoevfl.method import Method, Report
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.rows.table import PartyTable

Watch = Callable[[Report], None]
Progress = Callable[[str, int, int], None]  # (what, done, total)
SUBSETS = 6  # parties up to which training also reports every subset
FEW = 10  # labelled rows under which a class counts as rare


@dataclass
class Trained:
    """The trained parties, the owner, embeddings of the query rows, and what it cost."""

    method: Method
    parties: list[Party]
    owner: LabelOwner
    privacy: PrivacySettings
    query: dict[int, Tensor]  # (n_q, d) by party
    cost: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)

    def stored_owner(
        self, names: Sequence[str], classes: Sequence[str], label_column: str, test: Tensor, facts: dict[str, Any]
    ) -> StoredOwner:
        """What is kept of the owner; the first len(test) query rows are the test rows with these labels."""
        if self.owner.head is None:
            raise UserError(f"{self.method.name} has not trained a head; nothing can be kept")
        rows = TestRows({m: f[: len(test)].contiguous() for m, f in self.query.items()}, test)
        stored = StoredOwner(
            parties=tuple(names), classes=tuple(classes), label_column=label_column, labels=self.owner.labels.cpu(),
            method=self.method, privacy=self.privacy, head=self.owner.head.cpu(),
            memory={n: t.detach().cpu() for n, t in self.owner.memory.items() if not n.startswith("guard.")}, test=rows,
            metrics={}, unseen=self.owner.unseen, rare=self.owner.rare, key=self.owner.key,
        )  # fmt: skip
        stored.metrics.update(measure(stored, rows), **self.cost, history=self.history, **facts)
        return stored


def train(
    method: Method,
    tables: Sequence[PartyTable],
    labels: Tensor,
    classes: int,
    *,
    unseen: tuple[int, ...] = (),
    privacy: PrivacySettings | None = None,
    seed: int = 0,
    device: str = "cpu",
    watch: Watch | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Drive the method to its end; party 0 holds the labels (N_a,). `progress` hears of the parties' own epochs."""
    privacy = privacy or PrivacySettings()
    parties = [
        Party(method, t, rnd.key(seed, "party", m), device, _named(progress, t.name)) for m, t in enumerate(tables)
    ]
    owner = LabelOwner(
        labels.to(device), classes, tuple(range(len(tables))), rnd.key(seed, "owner"), unseen=unseen,
        rare=rare_classes(labels, classes),
    )  # fmt: skip
    engine = InProcess({(0, m): p for m, p in enumerate(parties)})
    metered, border, (ledger,) = defend(engine, [owner], [seed], privacy)
    start, history = time.perf_counter(), list[dict[str, Any]]()
    for _, report in drive([method.train(owner)], border):
        history.append({"phase": report.phase, "step": report.step, "steps": report.steps, **_plain(report)})
        if watch is not None:
            watch(report)
    cost = {"seconds": time.perf_counter() - start, "bytes": metered.ledger(0), "rounds": metered.rounds[0]}
    if ledger.entries:
        cost["epsilon"] = {str(m): ledger.epsilon(m, "down") for m in range(1, len(tables))}
    replies = border.exchange({(0, m): Embed("query") for m in owner.parties})
    query = {m: _embeddings(replies[0, m]).cpu() for m in owner.parties}
    return Trained(method, parties, owner, privacy, query, cost, history)


def measure(owner: StoredOwner, rows: TestRows) -> dict[str, Any]:
    """Metrics on test rows: all parties, every subset where parties are few, and answering the commonest class."""
    if not len(rows.labels):
        return {"rows": 0}
    everyone = tuple(range(len(owner.parties)))
    found: dict[str, Any] = {"rows": len(rows.labels)}
    found["test"] = metrics.evaluate(owner.subset(rows, everyone), rows.labels, owner.unseen)
    found["majority"] = majority(owner, rows.labels)
    if len(everyone) <= SUBSETS:
        sizes = (itertools.combinations(everyone, k) for k in range(1, len(everyone) + 1))
        found["subsets"] = {
            "+".join(owner.parties[m] for m in some): short(metrics.evaluate(owner.subset(rows, some), rows.labels))
            for some in itertools.chain.from_iterable(sizes)
        }
    return found


def majority(owner: StoredOwner, labels: Tensor) -> dict[str, Any]:
    """Always answering the commonest class of the training rows: the class, and how often that is right."""
    commonest = int(torch.bincount(owner.labels).argmax())
    return {"class": owner.classes[commonest], "accuracy": float((labels == commonest).double().mean())}


def rare_classes(labels: Tensor, classes: int) -> tuple[int, ...]:
    """Classes with a few labelled rows, where the others have many."""
    counts = torch.bincount(labels, minlength=classes)
    few = (counts > 0) & (counts < FEW) & (counts < len(labels) / classes / 4)
    return tuple(few.nonzero()[:, 0].tolist())


def _named(progress: Progress | None, name: str) -> Progress:
    return (lambda *_: None) if progress is None else lambda what, done, of: progress(f"{name}: {what}", done, of)


def short(found: dict[str, Any]) -> dict[str, Any]:
    """The few figures that every subset of parties is shown with."""
    return {name: found[name] for name in ("accuracy", "balanced_accuracy", "auc")}


def _plain(report: Report) -> dict[str, Any]:
    return {n: v.detach().cpu().tolist() if isinstance(v, Tensor) else v for n, v in report.values.items()}


def _embeddings(reply: Any) -> Tensor:
    if not isinstance(reply, Message):
        raise UserError(f"a party did not answer: {getattr(reply, 'reason', reply)}")
    return values(reply)
