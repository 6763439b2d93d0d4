"""What a run keeps of the label owner: head, memory, labels, class names, and the test rows'
embeddings.

    RUN/owner/   owner.json  head.safetensors  test.safetensors  metrics.json

A stored owner predicts from embeddings, whichever parties sent some. The embeddings of the test
rows are those it received while it measured itself; with them every subset of parties can be
measured again without any file.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from protoevfl.artifacts import head_io, integrity
from protoevfl.core import decisions, metrics
from protoevfl.errors import UserError
from protoevfl.federation.lockstep import Address, lockstep
from protoevfl.federation.owner import LabelOwner
from protoevfl.messages import Embeddings, Message
from protoevfl.method import Method
from protoevfl.privacy.policy import OwnerGuard, PrivacySettings, settings_from
from protoevfl.rows.table import Further, OwnRows
from protoevfl.settings.method_choice import method_facts, method_from

FORMAT = "protoevfl-owner"
ROWS = 65_536  # predicted at a time


@dataclass(frozen=True)
class TestRows:
    """Rows that took no part in training: each party's embeddings (n, d) and the labels (n,)."""

    __test__ = False  # not a test case
    embeddings: dict[int, Tensor]
    labels: Tensor
    # (n, ...) the active party's encoded rows, for its own model; without such a model only the
    # first ones are kept, for the page about the run
    own: Tensor | None = None


@dataclass(frozen=True)
class StoredOwner:
    parties: tuple[str, ...]  # in the order of the run; the first one holds the labels
    classes: tuple[str, ...]
    label_column: str
    labels: Tensor  # (N_a,) of the training rows
    method: Method
    privacy: PrivacySettings
    # None where the joint model is fitted anew from the shared rows (methods/joint.py)
    head: nn.Module | None
    memory: dict[str, Tensor]
    test: TestRows
    metrics: dict[str, Any]
    unseen: tuple[int, ...] = ()
    rare: tuple[int, ...] = ()
    key: int = 0  # of random draws, where a method makes some to predict
    decision: decisions.Rule = "likeliest"  # which class a row is said to be of
    rates: tuple[float, ...] = ()  # of the classes among all labels
    # models fitted from the memory
    cache: dict[Any, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        owner: LabelOwner,
        method: Method,
        privacy: PrivacySettings,
        parties: tuple[str, ...],
        classes: tuple[str, ...],
        label_column: str,
        test: TestRows,
        decision: decisions.Rule,
    ) -> "StoredOwner":
        """What is kept of a trained owner."""
        memory = {
            name: tensor.detach().cpu()
            for name, tensor in owner.memory.items()
            if not name.startswith("guard.")
        }
        if owner.head is None and "linear" not in memory:
            raise UserError(f"{method.name} has not trained a head; nothing can be kept")
        known = owner.labels if owner.own is None else owner.own.labels[owner.own.labels >= 0]
        counts = torch.bincount(known.cpu(), minlength=len(classes)).double()
        return cls(
            parties=parties,
            classes=classes,
            label_column=label_column,
            labels=owner.labels.cpu(),
            method=method,
            privacy=privacy,
            head=None if owner.head is None else owner.head.cpu(),
            memory=memory,
            test=test,
            metrics={},
            unseen=owner.unseen,
            rare=owner.rare,
            key=owner.key,
            decision=decision,
            rates=tuple((counts / counts.sum()).tolist()),
        )

    @property
    def has_own_model(self) -> bool:
        return "own.shared" in self.memory

    def probabilities(
        self,
        embeddings: Mapping[int, Tensor],
        present: Tensor,
        own: Tensor | None = None,
        examples: Mapping[int, int] | None = None,
        attributes: Tensor | None = None,
    ) -> Tensor:
        """(n, Z) from embeddings (n, d) by party number; present (M, n) says which lines of them
        are real.

        own          (n, ...) the active party's encoded rows, where its own model takes part
        examples     class -> row: names of two and more unseen classes
        attributes   (Z, K): the same
        """
        if own is None and self.has_own_model and bool(present[0].any()):
            raise UserError(
                f"the own model of {self.parties[0]} needs its encoded rows beside the embeddings"
            )
        guard = self._guard()
        owner = replace(self._owner(), attributes=attributes)
        known = {m: _values(guard.received(m, Embeddings(f))) for m, f in embeddings.items()}
        out = torch.zeros(present.shape[1], len(self.classes))
        # (n,) one number a subset
        codes = (present.long() * (1 << torch.arange(len(present)))[:, None]).sum(0)
        for code in sorted(set(codes.tolist())):
            subset = tuple(m for m in range(len(self.parties)) if code >> m & 1)
            for rows in torch.split((codes == code).nonzero()[:, 0], ROWS):
                owner = replace(owner, examples=among(rows, examples or {}), own=_own(own, rows))
                out[rows] = self._ask(owner, {m: f[rows] for m, f in known.items()}, subset)
        return out

    def choose(self, probabilities: Tensor) -> Tensor:
        """Classes (n,) of probabilities (n, Z), by the run's rule."""
        return decisions.choose(probabilities, self.decision, torch.tensor(self.rates))

    def class_names(self, named: Collection[int] = ()) -> tuple[str, ...]:
        """What a row of each class is said to be. Two and more classes without labels that nothing
        names (`named`: those that an example or attributes name) are "a or b": their rows are told
        apart, but not which of the groups is which class."""
        nameless = [z for z in self.unseen if z not in named]
        if len(nameless) < 2:  # one is known by elimination
            return self.classes
        either = " or ".join(self.classes[z] for z in nameless)
        return tuple(either if z in nameless else name for z, name in enumerate(self.classes))

    def evaluate(self, probabilities: Tensor, labels: Tensor) -> dict[str, Any]:
        """The figures of a record, with the classes that the run's rule chooses."""
        choice = self.choose(probabilities)
        return metrics.evaluate(probabilities, labels, self.unseen, choice)

    def subset(self, rows: TestRows, parties: tuple[int, ...]) -> Tensor:
        """(n, Z) of test rows from these parties only."""
        present = torch.zeros(len(self.parties), len(rows.labels), dtype=torch.bool)
        present[list(parties)] = True
        return self.probabilities(
            rows.embeddings, present, rows.own if self.has_own_model else None
        )

    def _ask(
        self, owner: LabelOwner, embeddings: dict[int, Tensor], subset: tuple[int, ...]
    ) -> Tensor:
        talks = {0: self.method.predict(owner, subset)}
        probabilities = lockstep(talks, _Known(embeddings))[0]
        # what these rows taught, for single rows later
        learnt = {n: t.cpu() for n, t in owner.memory.items() if n.startswith("batch.")}
        self.memory.update(learnt)
        return probabilities.detach().cpu().float()

    def _owner(self) -> LabelOwner:
        further = None
        if "further.labels" in self.memory:
            further = Further(self.memory["further.labels"], self.memory["further.shared"])
        return LabelOwner(
            self.labels,
            len(self.classes),
            tuple(range(len(self.parties))),
            self.key,
            unseen=self.unseen,
            rare=self.rare,
            head=self.head,
            memory=dict(self.memory),
            further=further,
            cache=self.cache,
        )

    def _guard(self) -> OwnerGuard:
        return OwnerGuard(self.privacy, self.labels, len(self.classes))

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        head, tensors = head_io.pack(self.head)
        kept = {f"head.{n}": t for n, t in tensors.items()} | {
            f"memory.{n}": t for n, t in self.memory.items()
        }
        integrity.write_tensors(folder / "head.safetensors", {**kept, "labels": self.labels})
        test = {f"party.{m}": f for m, f in self.test.embeddings.items()}
        own = {} if self.test.own is None else {"own": self.test.own}
        integrity.write_tensors(
            folder / "test.safetensors", {**test, **own, "labels": self.test.labels}
        )
        integrity.write_json(folder / "metrics.json", self.metrics)
        facts = {
            "parties": list(self.parties),
            "classes": list(self.classes),
            "unseen": list(self.unseen),
            "rare": list(self.rare),
            "key": self.key,
            "decision": self.decision if isinstance(self.decision, str) else dict(self.decision),
            "rates": list(self.rates),
            "label_column": self.label_column,
            "method": method_facts(self.method),
            "privacy": asdict(self.privacy),
            "head": head,
        }
        integrity.seal(folder, "owner.json", FORMAT, facts)

    @classmethod
    def load(cls, folder: Path) -> "StoredOwner":
        facts = integrity.unseal(folder, "owner.json", FORMAT)
        with integrity.readable(folder):
            tensors = integrity.read_tensors(folder / "head.safetensors")
            test = integrity.read_tensors(folder / "test.safetensors")
            return cls(
                parties=tuple(facts["parties"]),
                classes=tuple(facts["classes"]),
                label_column=facts["label_column"],
                labels=tensors["labels"],
                method=method_from(facts["method"]),
                privacy=settings_from(facts["privacy"]),
                head=head_io.unpack(facts["head"], _under("head.", tensors)),
                memory=_under("memory.", tensors),
                test=TestRows(
                    {int(m): f for m, f in _under("party.", test).items()},
                    test["labels"],
                    test.get("own"),
                ),
                metrics=integrity.read_json(folder / "metrics.json"),
                unseen=tuple(facts["unseen"]),
                rare=tuple(facts["rare"]),
                key=facts["key"],
                decision=_decision(facts["decision"]),
                rates=tuple(facts["rates"]),
            )


def _decision(value: str | dict[str, float]) -> decisions.Rule:
    """A rule from JSON, where class numbers are texts."""
    return value if isinstance(value, str) else {int(z): t for z, t in value.items()}


def among(rows: Tensor, examples: Mapping[int, int]) -> dict[int, int]:
    """The examples (class -> row) that stand among these rows (n,), by their place there.

    >>> among(torch.tensor([4, 7, 9]), {1: 9, 2: 5})
    {1: 2}
    """
    places = {z: (rows == row).nonzero() for z, row in examples.items()}
    return {z: int(place[0]) for z, place in places.items() if len(place)}


@dataclass(frozen=True)
class _Known:
    """An engine that answers from embeddings at hand; a party without any answers zeros, which
    nobody uses."""

    embeddings: dict[int, Tensor]

    def exchange(self, requests: Mapping[Address, Message]) -> dict[Address, Message]:
        known = next(iter(self.embeddings.values()))
        return {
            (run, m): Embeddings(self.embeddings.get(m, torch.zeros_like(known)))
            for run, m in requests
        }


def _own(own: Tensor | None, rows: Tensor) -> OwnRows | None:
    """The active party's own view of the rows to be predicted; what the model learnt from is not
    kept."""
    return None if own is None else OwnRows(own[:0], rows[:0], own[rows], 0)


def _values(message: Message) -> Tensor:
    assert isinstance(message, Embeddings)
    return message.values


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
