"""From recordings to figures: attackers' cases, findings of every threat model, inversion,
utility."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.audit.own_run import OwnRun
from protoevfl.audit.record import Recording, method_of
from protoevfl.bench.world import RunConfig
from protoevfl.federation.border import noise_of
from protoevfl.messages import Embeddings, Learned, Statistics
from protoevfl.privacy.attacks.class_sums import made_up_features, sealed_labels
from protoevfl.privacy.attacks.gradients import condensed
from protoevfl.privacy.attacks.inversion import invert
from protoevfl.privacy.attacks.membership import told_apart
from protoevfl.privacy.gives_away import columns_of, gives_away
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.protocol import Case, Extra, Finding, investigate, malicious
from protoevfl.privacy.scores import interval
from protoevfl.privacy.view import View, together, views

POOL_ROWS = 2000  # of its pool an attacker works with


def cases(
    recordings: Sequence[Recording],
    yardsticks: Sequence[Recording],
    config: RunConfig | OwnRun,
    privacy: PrivacySettings,
) -> list[list[Case]]:
    """For each seed one case a passive party; encoders that saw no message come from the one-way
    recordings."""
    method = method_of(config)
    guarded = privacy.guards_labels
    rounds = getattr(method, "rounds", None)
    rule = "none" if guarded else str(getattr(rounds, "update", "none"))
    public: dict[str, Any] = {"update": rule, "rho": float(getattr(rounds, "rho", 1.0))}
    public["rank"] = privacy.rank if guarded else None
    groups = []
    for recording, silent in zip(recordings, yardsticks, strict=True):
        owner = recording.world.owner
        seen = {p: condensed(v) for p, v in seen_by(recording).items()}
        empty = View((), len(owner.labels), owner.classes)
        parties = owner.parties[1:]
        views_of_run = [
            replace(
                seen.get(m, empty),
                own={m: silent.own[m]},
                pool={m: silent.pool[m][:POOL_ROWS]},
                wide={m: _sent(silent, m)[0]},
                **public,
            )
            for m in parties
        ]
        groups.append([Case(recording.seed, view, owner.labels) for view in views_of_run])
    return groups


def seen_by(recording: Recording) -> dict[int, View]:
    """What each passive party of a recording has seen."""
    owner = recording.world.owner
    return views(recording.transcript, len(owner.labels), owner.classes)


def threats(groups: list[list[Case]], rounds: int) -> dict[str, list[Case]]:
    """The attackers by threat model; a malicious party needs rounds, or sealed labels, to draw
    anything out."""
    joint = [
        Case(g[0].seed, together(c.view for c in g), g[0].labels) for g in groups if len(g) > 1
    ]
    cases_of = {"passive": [case for group in groups for case in group], "colluding": joint}
    asks_questions = rounds or sealed_labels(groups[0][0].view) is not None
    cases_of["malicious"] = [group[0] for group in groups] if asks_questions else []
    return {threat: attacked for threat, attacked in cases_of.items() if attacked}


def width_of(groups: list[list[Case]]) -> int:
    """Columns of the embeddings prototypes are made of."""
    first = groups[0][0].view
    return (
        first.releases()[0].f.shape[1]
        if first.releases()
        else next(iter(first.own.values())).shape[1]
    )


def findings(
    groups: list[list[Case]], privacy: PrivacySettings, rounds: int, known: Sequence[int]
) -> list[Finding]:
    """Every threat model at every k."""
    parts, width = threats(groups, rounds), width_of(groups)
    return [
        investigate(attacked, threat, k, extra(threat, privacy, width, rounds))
        for k in known
        for threat, attacked in parts.items()
    ]


def extra(threat: str, privacy: PrivacySettings, width: int, rounds: int) -> Extra | None:
    """What a malicious party does on top."""
    if threat != "malicious":
        return None
    if rounds:
        return malicious(privacy, width, rounds, noise_of)
    return lambda case, side: made_up_features(case.view, side)


def _sent(recording: Recording, party: int) -> list[Tensor]:
    """Embeddings (N, d) of all aligned rows that a party sent, in order."""
    replies = (
        a for p, _, a in recording.transcript if p == party and isinstance(a, Embeddings | Learned)
    )
    return [a.values for a in replies if len(a.values) == len(recording.world.owner.labels)]


def _received(recording: Recording, party: int) -> Tensor | None:
    """The newest embeddings (N, d) of the aligned rows that the owner has from a party; None where
    nothing crossed."""
    seen = seen_by(recording).get(party)
    return None if seen is None else seen.last_embeddings(party)


def inversion(recordings: Sequence[Recording]) -> dict[str, dict[str, float]]:
    """The owner rebuilds the first passive party's aligned rows; half of the pairs have leaked.
    Means over seeds."""
    totals: Counter[tuple[str, str]] = Counter()
    for recording in recordings:
        party = recording.world.owner.parties[1]
        rows = recording.world.tables[party].aligned.to(recording.own[party].device)
        sent = _received(recording, party)
        if sent is None:
            return {}
        scaled = rows.float() / 255 if rows.dtype == torch.uint8 else rows - rows.amin(0)
        scaled = scaled / scaled.amax().clamp(min=1e-9)
        leaked = torch.arange(len(rows), device=rows.device) % 2 == 0
        labels = recording.world.labels.aligned.to(rows.device)
        for name, result in invert(sent.to(rows.device), scaled, leaked, labels).items():
            for what, value in asdict(result).items():
                if value is not None:
                    totals[name, what] += value / len(recordings)
    table: dict[str, dict[str, float]] = {}
    for (name, what), value in totals.items():
        table.setdefault(name, {})[what] = value
    return table


def columns(
    recordings: Sequence[Recording], names: Mapping[int, Sequence[str]]
) -> dict[str, dict[str, dict[str, float]]]:
    """{party: {column: {way of guessing: score}}}: what the owner rebuilds of each passive party's
    columns from the newest it was sent. Means over seeds; tables only.

    names   columns of a party, where they have names
    """
    totals: dict[tuple[str, str, str], list[float]] = {}
    for recording in recordings:
        labels = F.one_hot(recording.world.labels.aligned.cpu()).float()
        for party in recording.world.owner.parties[1:]:
            table = recording.world.tables[party]
            sent = _received(recording, party)
            if table.spans is None or sent is None:
                continue
            columns_held = columns_of(
                table.aligned.cpu(), table.spans, table.numbers, names.get(party, ())
            )
            for way, known in (("from what it sends", sent), ("from the label alone", labels)):
                for column, score in gives_away(columns_held, known).items():
                    totals.setdefault((table.name, column, way), []).append(score)
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for (who, column, way), scores in totals.items():
        tables.setdefault(who, {}).setdefault(column, {})[way] = sum(scores) / len(scores)
    return tables


def pools(recordings: Sequence[Recording]) -> dict[str, dict[str, float]]:
    """{party: figures} of the statistics of its own rows that it sent; means over seeds."""
    totals: dict[str, list[dict[str, float]]] = {}
    for recording in recordings:
        for party, _, reply in recording.transcript:
            if party != recording.world.owner.parties[0] and isinstance(reply, Statistics):
                name = recording.world.tables[party].name
                totals.setdefault(name, []).append(told_apart(reply, *recording.described[party]))
    return {
        name: {what: sum(one[what] for one in many) / len(many) for what in many[0]}
        for name, many in totals.items()
    }


def utility(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Accuracy of the joint model and of the parties' pseudo-labels, mean and half interval over
    seeds."""
    accuracy = [float(r.metrics["accuracy"]) for r in recordings]
    rates = [
        sum(v for m, v in r.pseudo_labels.items() if m) / max(1, len(r.pseudo_labels) - 1)
        for r in recordings
    ]
    has_pseudo_labels = any(r.pseudo_labels for r in recordings)
    chance = 1 / recordings[0].world.owner.classes
    return {
        "accuracy": interval(accuracy),
        "by_seed": accuracy,
        "pseudo_labels": interval(rates) if has_pseudo_labels else None,
        "useful": (sum(rates) / len(rates) > chance + 0.05) if has_pseudo_labels else None,
        "bytes_down": recordings[0].crossed["down"],
        "bytes_up": recordings[0].crossed["up"],
    }
