"""Audits: run a configuration as it is, with shuffled labels and one-way, attack all that crossed,
keep the figures.

`audit` gives plain facts (JSON) that `privacy/report.py` turns into Markdown and HTML; `attacked`
gives records with an "attack" entry for the table of label inference. Three simulations share their
seeds, hence their rows and encoders:

    as it is     the transcript the attacks work on, and the accuracy
    canary       the same with labels shuffled over the rows
    one-way      Proto-EVFL without rounds: nothing made of labels leaves; its encoders are what an
                 attacker has anyway

May import the bench and the pipeline. Open record.py next (what a simulation keeps), then
figures.py.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from protoevfl.audit.figures import cases, columns, findings, inversion, pools, utility
from protoevfl.audit.own_run import OwnRun
from protoevfl.audit.record import (
    Recording,
    Warm,
    method_of,
    one_way_of,
    privacy_of,
    record,
    record_both,
)
from protoevfl.bench.run import versions
from protoevfl.bench.world import RunConfig
from protoevfl.messages import Learn, OpenLabels
from protoevfl.observer import SILENT, Observer
from protoevfl.privacy.bounds import randomised_response_guess
from protoevfl.privacy.policy import PrivacySettings

KNOWN = (0, 1, 4, 10)
PHASES = (
    "the run, and with shuffled labels",
    "without anything made of labels",
    "without defences",
    "attacks on labels",
    "attacks on shuffled labels",
    "attacks on columns",
)


def audit(
    config: RunConfig | OwnRun,
    seeds: Sequence[int],
    *,
    device: str = "auto",
    known: Sequence[int] = KNOWN,
    canaries: int = 1,
    observer: Observer = SILENT,
) -> dict[str, Any]:
    """All figures of a configuration as plain facts.

    known      labels of each class that an attacker knows, one figure each
    canaries   shufflings of the labels per seed; few seeds need several for a steady figure
    """
    plain, privacy = privacy_of(config)
    none = PrivacySettings()
    warm: Warm = {}
    phases = iter(range(len(PHASES)))

    def begin() -> None:
        step = next(phases)
        observer.progress(PHASES[step], step, len(PHASES))

    begin()
    real, canary = record_both(config, seeds, canaries=canaries, device=device, warm=warm)
    rounds = rounds_of(real)
    sealed = any(isinstance(q, OpenLabels) for _, q, _ in real[0].transcript)
    # nothing made of labels was sent and nothing clipped: all three runs are the same
    nothing_sent = not rounds and not sealed and privacy.clip is None
    one_for_all = plain.method == "proto_evfl" and nothing_sent
    one_way = undefended = real
    begin()
    if not one_for_all:
        one_way = record(one_way_of(plain), seeds, device=device, privacy=none, warm=warm)
    begin()
    if not one_for_all and privacy != none:
        undefended = record(config, seeds, device=device, privacy=none, warm=warm)
    begin()
    with_labels = findings(cases(real, one_way, plain, privacy), privacy, rounds, known)
    begin()
    yardsticks = [one for _ in range(canaries) for one in one_way]
    shuffled = findings(cases(canary, yardsticks, plain, privacy), privacy, rounds, (0,))
    begin()
    first = real[0]
    owner = first.world.owner
    n, z, passive = len(owner.labels), owner.classes, len(owner.parties) - 1
    alone, together = _guess_bounds(privacy, first, rounds)
    names = {}
    if isinstance(config, OwnRun):
        names = {m: part.encoder.columns for m, part in enumerate(config.prepared.parties)}
    return {
        "config": config.identity(),
        "privacy": asdict(privacy),
        "seeds": list(seeds),
        "rows": n,
        "classes": z,
        "parties": passive + 1,
        "rounds": rounds,
        "level": getattr(method_of(plain), "columns", "open"),
        "crossed": first.crossed,
        "findings": [f.as_json() for f in with_labels],
        "canary": [f.as_json() for f in shuffled],
        "inversion": inversion(real),
        "columns": columns(real, names),
        "pools": pools(real),
        "ledger": first.ledger.summary(),
        "coalition_epsilon": first.ledger.coalition(range(1, passive + 1))
        if first.ledger.entries
        else None,
        "guess_bound": alone,
        "coalition_guess_bound": together,
        "honest_bounds": [privacy.sealed_bound(z, k) for k in (1, passive)] if sealed else None,
        "utility": {
            "as it is": utility(real),
            "undefended": utility(undefended),
            "one-way": utility(one_way),
        },
    }


def attacked(
    config: RunConfig, seeds: Sequence[int], *, device: str = "auto", engine: str = "auto"
) -> list[dict[str, Any]]:
    """Records of the runs, each with an "attack" entry: figures of the passive party with one known
    label per class.

    The seeds are attacked together (the worst attack is chosen by its mean); every record holds its
    own seed's share. Always the stacked engine, whatever `engine` says.
    """
    start = time.perf_counter()
    plain, privacy = privacy_of(config)
    warm: Warm = {}
    silent = record(one_way_of(plain), seeds, device=device, privacy=PrivacySettings(), warm=warm)
    real, canary = record_both(config, seeds, device=device, warm=warm)
    rounds = rounds_of(real)
    with_labels = findings(cases(real, silent, plain, privacy), privacy, rounds, (0, 1))
    shuffled = findings(cases(canary, silent, plain, privacy), privacy, rounds, (0,))
    seconds = (time.perf_counter() - start) / len(seeds)
    facts = [f.as_json() for f in with_labels], [f.as_json() for f in shuffled]
    return attack_records(config, real, *facts, seconds)


def rounds_of(recordings: Sequence[Recording]) -> int:
    """How often a passive party was sent prototypes."""
    return sum(isinstance(q, Learn) and p == 1 for p, q, _ in recordings[0].transcript)


def attack_records(
    config: RunConfig,
    real: Sequence[Recording],
    with_labels: Sequence[Mapping[str, Any]],
    shuffled: Sequence[Mapping[str, Any]],
    seconds: float,
) -> list[dict[str, Any]]:
    """One record per seed from its recording and the findings (as JSON) with true and with shuffled
    labels."""
    _, privacy = privacy_of(config)
    passive = {f["known"]: f for f in with_labels if f["threat"] == "passive"}
    canaries = {f["threat"]: f for f in shuffled}
    bound, _ = _guess_bounds(privacy, real[0], rounds_of(real))
    return [
        {
            **config.identity(),
            "seed": one.seed,
            "metrics": one.metrics,
            "bytes": one.crossed,
            "rounds": one.exchanges,
            "seconds": seconds,
            "split_hash": one.world.split.hash,
            "split": one.world.split.as_json(),
            "versions": versions(),
            "epsilon": one.ledger.summary(),
            "privacy": {name: value for name, value in asdict(privacy).items() if value},
            "attack": {
                "accuracy": passive[1]["worst"]["by_seed"][i],
                "advantage": passive[1]["worst"]["by_seed"][i]
                - passive[1]["yardstick"]["by_seed"][i],
                "unaided": passive[0]["worst"]["by_seed"][i],
                "canary": _canary(canaries.get("passive"), i),
                "canary_colluding": _canary(canaries.get("colluding"), i),
                "nearest_prototype": _nearest(passive[0], i),
                "name": passive[1]["worst"]["attack"],
                "guess_bound": bound,
            },
        }
        for i, one in enumerate(real)
    ]


def _canary(finding: Mapping[str, Any] | None, i: int) -> float | None:
    """None where no message could be attacked: groups that an oracle names say nothing about single
    people."""
    return finding["worst"]["by_seed"][i] if finding and finding["worst"]["communicates"] else None


def _guess_bounds(privacy: PrivacySettings, first: Recording, rounds: int) -> tuple[float, float]:
    """The best possible rate of right guesses of a label by one party, and by all of them
    together."""
    owner = first.world.owner
    rows = len(owner.labels)
    classes = owner.classes
    passive = len(owner.parties) - 1
    if any(isinstance(q, OpenLabels) for _, q, _ in first.transcript):
        # all parties of a sealed run see the same draw: together they know no more than one
        bound = randomised_response_guess(privacy.sealed_epsilon, classes)
        return bound, bound
    if not _promised(privacy, first):
        return 1.0, 1.0
    return (
        privacy.guess_bound(rows, classes, rounds),
        privacy.guess_bound(rows, classes, rounds, passive),
    )


def _promised(privacy: PrivacySettings, first: Recording) -> bool:
    """Whether something is proven for labels: noise on them, or nothing goes down at all."""
    return privacy.guards_labels or not first.crossed["down"]


def _nearest(finding: Mapping[str, Any], i: int) -> float | None:
    """The paper's attack: the cosine to the nearest prototype of the last message."""
    accuracies = [
        x["by_seed"][i]
        for x in finding["lines"]
        if x["attack"].startswith("nearest prototype, cosine, mess")
    ]
    return accuracies[-1] if accuracies else None
