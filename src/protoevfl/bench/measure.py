"""Everything that is measured of a trained run on its query rows."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from protoevfl.bench.world import RunConfig, World
from protoevfl.core import decisions, metrics
from protoevfl.errors import UserError
from protoevfl.federation.federation import Federation
from protoevfl.federation.owner import LabelOwner
from protoevfl.methods.own_model import has_own_model


def measured(
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
            truth = worlds[r].labels.pools[m]
            classes = worlds[r].labels.classes
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
