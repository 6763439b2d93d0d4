"""Recorded simulations: every message of several seeds, as it is, with shuffled labels, or with
other defences.

`record` makes one kind; `record_both` drives the runs as they are and their canaries in one
lockstep, as members of one batched model, which on a GPU costs little more than one of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from protoevfl.audit.own_run import OwnRun
from protoevfl.bench.world import RunConfig, World, prepare
from protoevfl.core import metrics
from protoevfl.core.transport import cosine
from protoevfl.distributed import choose_device
from protoevfl.errors import UserError
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.federation import Federation, simulate
from protoevfl.federation.lockstep import Address
from protoevfl.federation.owner import LabelOwner
from protoevfl.messages import Learn, Message, Statistics, WarmUp
from protoevfl.models import embed
from protoevfl.privacy.ledger import Ledger
from protoevfl.privacy.policy import PrivacySettings, split_overrides
from protoevfl.privacy.protocol import shuffled
from protoevfl.settings.method_choice import CENTRAL
from protoevfl.settings.method_choice import privacy_of as settings_of
from protoevfl.settings.presets import build

AUDIT = "privacy.audit"  # marks the cells of the table of label inference; no setting of a run


@dataclass(frozen=True)
class Recording:
    """One seed of a simulation: what crossed, what came of it."""

    seed: int
    world: World
    transcript: list[tuple[int, Message, Message]]
    metrics: dict[str, Any]
    crossed: dict[str, Any]
    exchanges: int
    ledger: Ledger
    pseudo_labels: dict[int, float]  # party -> accuracy of nearest prototypes on its pool
    own: dict[int, Tensor]  # party -> (N, d) embeddings of the aligned rows by its final extractor
    pool: dict[int, Tensor]
    # party -> its (pool, aligned) rows in the space of the statistics it sent, where it sent some
    described: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)


Source = TypeVar("Source", bound=RunConfig | OwnRun)


def method_of(config: RunConfig | OwnRun) -> Any:
    """The method a simulation runs."""
    if isinstance(config, OwnRun):
        return config.chosen
    return build(config.method, config.preset, config.dataset, config.overrides)


def privacy_of(config: Source) -> tuple[Source, PrivacySettings]:
    """The configuration without privacy settings, and the privacy settings of its preset and
    overrides."""
    if isinstance(config, OwnRun):
        return config, config.privacy
    given = {name: value for name, value in config.overrides.items() if name != AUDIT}
    own, _ = split_overrides(given)
    plain = cast(Source, replace(config, overrides=own))
    return plain, settings_of(config.method, config.preset, config.dataset, given)


def record(
    config: RunConfig | OwnRun,
    seeds: Sequence[int],
    *,
    privacy: PrivacySettings | None = None,
    device: str = "auto",
    canary: bool = False,
    warm: "Warm | None" = None,
) -> list[Recording]:
    """Simulates and keeps everything; with `canary` the owner's labels are shuffled first and
    nothing is predicted.

    Recordings of the same rows that share `warm` train their extractors without labels only once.
    """
    return _simulate(config, [(seed, int(canary)) for seed in seeds], privacy, device, warm)


def record_both(
    config: RunConfig | OwnRun,
    seeds: Sequence[int],
    *,
    canaries: int = 1,
    device: str = "auto",
    warm: "Warm | None" = None,
) -> tuple[list[Recording], list[Recording]]:
    """(the runs as they are, their canaries: so many shufflings of every seed's labels, which
    steadies the figure)."""
    runs = [(seed, number) for number in range(canaries + 1) for seed in seeds]
    records = _simulate(config, runs, None, device, warm)
    return records[: len(seeds)], records[len(seeds) :]


def _simulate(
    config: RunConfig | OwnRun,
    runs: Sequence[tuple[int, int]],
    privacy: PrivacySettings | None,
    device: str,
    warm: "Warm | None",
) -> list[Recording]:
    """One recording for each (seed, 0 as it is or the number of a shuffling of its labels)."""
    plain, chosen = privacy_of(config)
    if plain.method in CENTRAL:
        raise UserError(
            f"{plain.method} has all rows in one place, so nothing crosses to be attacked; name "
            "another method"
        )
    chosen = chosen if privacy is None else privacy
    chosen = replace(chosen, encrypt=False)  # attacks work on sums, which are the same without it
    device = choose_device(device)
    method = method_of(plain)
    seeds = [seed for seed, _ in runs]
    worlds = [
        plain.world(device) if isinstance(plain, OwnRun) else prepare(plain, seed, device)
        for seed in seeds
    ]
    for world, (seed, canary) in zip(worlds, runs, strict=True):
        if canary:
            shuffle_labels(world.owner, seed, canary)

    def around(parties: Any) -> Any:
        if warm is None or not hasattr(method, "warm"):  # SS-VFL-I warms up in its own way
            return parties
        return _Once(parties, warm, _warm_up_of(plain, method), seeds)

    federation = simulate(
        [_hasty(method) if canary else method for _, canary in runs],
        [world.simulated for world in worlds],
        chosen,
        engine="stacked",
        device=device,
        record=True,
        around=around,
    )
    federation.train()
    assert federation.border.recorded is not None
    transcript = list(federation.border.recorded.transcript)
    traffic = [federation.traffic(r) for r in range(len(runs))]
    figures = _measured(federation, worlds, runs)
    inside = _inside(federation.parties)
    described = _described(federation.parties, transcript)
    recordings = []
    for r, seed in enumerate(seeds):
        crossed = [(p, q, a) for run, p, q, a in transcript if run == r and isinstance(a, Message)]
        recordings.append(
            _recording(
                seed,
                worlds[r],
                crossed,
                figures[r],
                traffic[r],
                federation.border.ledgers[r],
                inside,
                described,
                r,
            )
        )
    return recordings


def shuffle_labels(owner: LabelOwner, seed: int, number: int) -> None:
    """Canary: every label the owner has lies on another row, those of its own rows too."""
    owner.labels = shuffled(owner.labels, seed, number)
    if owner.own is None:
        return
    shared = len(owner.labels)
    labels = owner.own.labels.clone()  # rows shared with all, with some, with nobody
    labels[:shared] = owner.labels
    rest = labels[shared:]
    known = rest >= 0
    rest[known] = shuffled(rest[known], seed, number)
    owner.own = replace(owner.own, labels=labels)
    if owner.further is not None:
        further = labels[shared : shared + len(owner.further.labels)]
        owner.further = replace(owner.further, labels=further)


def _hasty(method: Any) -> Any:
    """The owner's side of a canary: nobody asks for predictions, so a head that only comes last
    need not be trained."""
    late = method.name == "proto_evfl" and not method.head_each_round
    return replace(method, head=replace(method.head, epochs=1)) if late else method


# extractors after their warm-up, by how, then by (seed, party)
Warm = dict[str, dict[Address, dict[str, Tensor]]]


def _warm_up_of(config: RunConfig | OwnRun, method: Any) -> str:
    """Everything an extractor depends on before the first message made of labels, seed and party
    apart."""
    parts = [getattr(method, name, None) for name in ("warm", "norm", "table", "width")]
    rows = config.name if isinstance(config, OwnRun) else config.split_spec()
    return repr((type(method).__name__, rows, parts))


@dataclass
class _Once:
    """Answers `WarmUp` with extractors of an earlier recording of the same rows where there are
    some."""

    engine: Stacked
    store: Warm
    name: str
    seeds: Sequence[int]  # of each run

    def exchange(self, requests: Mapping[Address, Message]) -> Mapping[Address, Message]:
        if not all(isinstance(r, WarmUp) for r in requests.values()):
            return self.engine.exchange(requests)
        have = self.store.setdefault(self.name, {})
        first = {(self.seeds[run], party): (run, party) for run, party in reversed(list(requests))}
        missing = {at: requests[at] for key, at in first.items() if key not in have}
        if missing:
            self.engine.exchange(missing)
            have |= {
                (self.seeds[run], party): net
                for (run, party), net in self._extractors(missing).items()
            }
        for members, cohort in self.engine.cohorts:
            nets = [have[self.seeds[run], party] for run, party in members]
            cohort.restore({name: torch.stack([net[name] for net in nets]) for name in nets[0]})
            trained: Any = cohort.method
            cohort.method = replace(trained, warm=replace(trained.warm, epochs=0))  # only embed
        replies = self.engine.exchange(requests)
        for _, cohort in self.engine.cohorts:
            cohort.method = trained
        return replies

    def _extractors(self, wanted: Mapping[Address, Message]) -> dict[Address, dict[str, Tensor]]:
        states: dict[Address, dict[str, Tensor]] = {}
        for members, cohort in self.engine.cohorts:
            state = {name: t for name, t in cohort.state().items() if name.startswith("net.")}
            for g, address in enumerate(members):
                if address in wanted:
                    states[address] = {name: t[g] for name, t in state.items()}
        return states


def _measured(
    federation: Federation, worlds: Sequence[World], runs: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    """The metrics of the runs that are no canaries, {} for the others."""
    real_runs = [r for r, (_, canary) in enumerate(runs) if not canary]
    measures: list[dict[str, Any]] = [{} for _ in runs]
    for r, p in zip(real_runs, federation.predict(runs=real_runs), strict=True):
        measures[r] = metrics.evaluate(p, worlds[r].labels.query, worlds[r].labels.unseen)
    return measures


def _inside(engine: Any) -> dict[Address, tuple[Tensor, Tensor]]:
    """(aligned, pool) embeddings of every party's extractor as it is now; simulation only."""
    embeddings: dict[Address, tuple[Tensor, Tensor]] = {}
    for members, cohort in engine.members():
        aligned = embed(cohort.net, cohort.rows.aligned)
        pool = embed(cohort.net, cohort.rows.pool)
        embeddings |= {address: (aligned[g], pool[g]) for g, address in enumerate(members)}
    return embeddings


def _described(
    engine: Any, transcript: Sequence[tuple[int, int, Message, Any]]
) -> dict[Address, tuple[Tensor, Tensor]]:
    """(pool, aligned) rows of parties that sent statistics, in the space of these; simulation
    only."""
    described = {
        (run, party) for run, party, _, reply in transcript if isinstance(reply, Statistics)
    }
    rows_of: dict[Address, tuple[Tensor, Tensor]] = {}
    for members, cohort in engine.members() if described else ():
        pool, aligned = (
            cohort.method.embed(cohort, rows) for rows in (cohort.rows.pool, cohort.rows.aligned)
        )
        rows_of |= {at: (pool[g], aligned[g]) for g, at in enumerate(members) if at in described}
    return rows_of


def _recording(
    seed: int,
    world: World,
    transcript: list[tuple[int, Message, Message]],
    measures: dict[str, Any],
    traffic: dict[str, Any],
    ledger: Ledger,
    inside: dict[Address, tuple[Tensor, Tensor]],
    described: dict[Address, tuple[Tensor, Tensor]],
    run: int,
) -> Recording:
    parties = world.owner.parties
    pools = {m: inside[run, m][1] for m in parties}
    return Recording(
        seed,
        world,
        transcript,
        metrics=measures,
        crossed=traffic["bytes"],
        exchanges=traffic["rounds"],
        ledger=ledger,
        pseudo_labels=_pseudo_labels(world, transcript, pools),
        own={m: inside[run, m][0] for m in parties},
        pool=pools,
        described={m: described[run, m] for m in parties if (run, m) in described},
    )


def _pseudo_labels(
    world: World, transcript: list[tuple[int, Message, Message]], pools: Mapping[int, Tensor]
) -> dict[int, float]:
    """Per party: how often the nearest of the prototypes it got last is right for its own pool."""
    if not world.labels.pools:  # classes of own files' unshared rows are known to nobody
        return {}
    last = {party: request for party, request, _ in transcript if isinstance(request, Learn)}
    rates: dict[int, float] = {}
    for party, request in last.items():
        width = min(pools[party].shape[1], request.prototypes.shape[1])
        guess = cosine(pools[party][:, :width], request.prototypes[:, :width]).argmax(1)
        rates[party] = metrics.accuracy(guess.cpu(), world.labels.pools[party]) or 0.0
    return rates


def one_way_of(config: Source) -> Source:
    """The same rows with nothing made of labels sent down; its self-supervised encoders are any
    attacker's own."""
    if isinstance(config, OwnRun):
        return cast(Source, config.without_rounds())
    own_preset = config.method == "proto_evfl" and not config.preset.startswith("paper")
    kept = {
        n: v
        for n, v in config.overrides.items()
        if own_preset and n.split(".")[0] in ("warm", "head", "layers")
    }
    one_way = replace(config, method="proto_evfl", preset="one_way", overrides=kept)
    return cast(Source, one_way)
