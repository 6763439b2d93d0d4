"""Audits: run a configuration as it is, with shuffled labels and one-way, attack all that crossed, keep the figures.

`audit` gives plain facts (JSON) that `privacy/report.py` turns into Markdown and HTML; `attacked` gives records with an
"attack" entry for the table of label inference. Three simulations share their seeds, hence their rows and encoders:

    as it is     the transcript the attacks work on, and the accuracy
    canary       the same with labels shuffled over the aligned rows
    one-way      Proto-EVFL without rounds: nothing made of labels leaves; its encoders are what an attacker has anyway
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from protoevfl.audit.figures import cases, findings, inversion, utility
from protoevfl.audit.record import Warm, one_way_of, privacy_of, record
from protoevfl.messages import Learn
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.run import RunConfig, run

KNOWN = (0, 1, 4, 10)


def audit(
    config: RunConfig, seeds: Sequence[int], *, device: str = "auto", known: Sequence[int] = KNOWN
) -> dict[str, Any]:
    """All figures of a configuration as plain facts."""
    plain, privacy = privacy_of(config)
    warm: Warm = {}
    real = record(config, seeds, device=device, warm=warm)
    canary = record(config, seeds, device=device, canary=True, warm=warm)
    none = PrivacySettings()
    one_way = record(one_way_of(plain), seeds, device=device, privacy=none, warm=warm)
    bare = record(config, seeds, device=device, privacy=none, warm=warm) if privacy != none else real
    rounds = sum(isinstance(q, Learn) and p == 1 for p, q, _ in real[0].transcript)
    found = findings(cases(real, one_way, plain, privacy), privacy, rounds, known)
    hidden = findings(cases(canary, one_way, plain, privacy), privacy, rounds, (0,))
    first = real[0]
    n, z, passive = len(first.world.owner.labels), first.world.owner.classes, len(first.world.owner.parties) - 1
    guarded = privacy.guards_labels or not first.crossed["down"]
    return {
        "config": config.identity(),
        "privacy": asdict(privacy),
        "seeds": list(seeds),
        "rows": n,
        "classes": z,
        "parties": passive + 1,
        "rounds": rounds,
        "crossed": first.crossed,
        "findings": [f.as_json() for f in found],
        "canary": [f.as_json() for f in hidden],
        "inversion": inversion(real),
        "ledger": first.ledger.summary(),
        "coalition_epsilon": first.ledger.coalition(range(1, passive + 1)) if first.ledger.entries else None,
        "guess_bound": privacy.guess_bound(n, z, rounds) if guarded else 1.0,
        "coalition_guess_bound": privacy.guess_bound(n, z, rounds, passive) if guarded else 1.0,
        "utility": {"as it is": utility(real), "undefended": utility(bare), "one-way": utility(one_way)},
    }


def attacked(
    config: RunConfig, seeds: Sequence[int], *, device: str = "auto", engine: str = "auto"
) -> list[dict[str, Any]]:
    """Records of a normal run, each with an "attack" entry: figures of the passive party with one known label a class.

    The seeds are attacked together (the worst attack is chosen by its mean); every record holds its own seed's share.
    """
    kept = {name: value for name, value in config.overrides.items() if name != "privacy.audit"}
    made = run(replace(config, overrides=kept), seeds, device=device, engine=engine)
    facts = audit(config, seeds, device=device, known=(0, 1))
    by_k = {f["known"]: f for f in facts["findings"] if f["threat"] == "passive"}
    hidden = next(f for f in facts["canary"] if f["threat"] == "passive")
    for i, one in enumerate(made):
        worst, silent = by_k[1]["worst"]["by_seed"][i], by_k[1]["yardstick"]["by_seed"][i]
        nearest = [
            x["by_seed"][i] for x in by_k[0]["lines"] if x["attack"].startswith("nearest prototype, cosine, mess")
        ]
        one["attack"] = {
            "accuracy": worst,
            "advantage": worst - silent,
            "canary": hidden["worst"]["by_seed"][i],
            "nearest_prototype": nearest[-1] if nearest else None,
            "name": by_k[1]["worst"]["attack"],
            "guess_bound": facts["guess_bound"],
        }
        one["overrides"] = dict(config.overrides)
    return made
