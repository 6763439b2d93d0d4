"""Recorded simulations: every message of several seeds, as it is, with shuffled labels, or with other defences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from protoevfl.core import metrics
from protoevfl.core.transport import cosine
from protoevfl.drive import Address, drive
from protoevfl.engines.stacked import Stacked
from protoevfl.engines.wrappers import Defended, Leaving, Metered, Recorded
from protoevfl.guarded import noise_of
from protoevfl.messages import Learn, Message, WarmUp
from protoevfl.models import embed
from protoevfl.party import Cohort
from protoevfl.presets import build, settings
from protoevfl.privacy.ledger import Ledger
from protoevfl.privacy.policy import OwnerGuard, PartyGuard, PrivacySettings, split_overrides
from protoevfl.privacy.protocol import shuffled
from protoevfl.run import RunConfig, World, ask, choose_device, engine_for, prepare


@dataclass(frozen=True)
class Recording:
    """One seed of a simulation: what crossed, what came of it."""

    seed: int
    world: World
    transcript: list[tuple[int, Message, Message]]
    metrics: dict[str, Any]
    crossed: dict[str, Any]
    ledger: Ledger
    pseudo_labels: dict[int, float]  # party -> accuracy of nearest prototypes on its pool
    own: dict[int, Tensor]  # party -> (N, d) embeddings of the aligned rows by its final extractor
    pool: dict[int, Tensor]


def privacy_of(config: RunConfig) -> tuple[RunConfig, PrivacySettings]:
    """The configuration without privacy settings, and the privacy settings of its preset and overrides."""
    named = settings(config.method, config.preset, config.dataset)
    own, _ = split_overrides({k: v for k, v in config.overrides.items() if k != "privacy.audit"})
    _, chosen = split_overrides({**named, **{k: v for k, v in config.overrides.items() if k != "privacy.audit"}})
    return replace(config, overrides=own), chosen


def record(
    config: RunConfig,
    seeds: Sequence[int],
    *,
    privacy: PrivacySettings | None = None,
    device: str = "auto",
    canary: bool = False,
    warm: "Warm | None" = None,
) -> list[Recording]:
    """Simulates and keeps everything; with `canary` the owner's labels are shuffled first and nothing is predicted.

    Recordings of the same rows that share `warm` train their extractors without labels only once.
    """
    plain, chosen = privacy_of(config)
    if canary and plain.method == "proto_evfl" and not plain.preset.startswith("paper"):
        plain = replace(plain, overrides={**plain.overrides, "head.epochs": 1})  # nobody asks for its predictions
    chosen = chosen if privacy is None else privacy
    device = choose_device(device)
    method = build(plain.method, plain.preset, plain.dataset, plain.overrides)
    worlds = [prepare(plain, seed, device) for seed in seeds]
    if canary:
        for world, seed in zip(worlds, seeds, strict=True):
            world.owner.labels = shuffled(world.owner.labels, seed)
    inner = engine_for(method, worlds, "stacked", device)
    ledgers = [Ledger(chosen.epsilon, chosen.delta) for _ in seeds]
    guards = {
        r: OwnerGuard(chosen, w.owner.labels, w.owner.classes, noise_of(seeds[r]), ledgers[r], w.owner.memory)
        for r, w in enumerate(worlds)
    }
    party_guards = {
        (r, m): PartyGuard(chosen, m, noise_of(seeds[r]), ledgers[r])
        for r, w in enumerate(worlds)
        for m in w.owner.parties[1:]
    }

    def up(address: Address, reply: Message) -> Message:
        return party_guards[address].up(reply) if address in party_guards else reply

    assert isinstance(inner, Stacked)
    recorded = Recorded(
        Leaving(inner if warm is None else _Once(inner, warm, _rows_and_warm_up(plain, seeds, method)), up)
    )
    metered = Metered(recorded)
    engine = Defended(metered, guards)
    for _ in drive([method.train(w.owner) for w in worlds], engine):
        pass
    said = list(recorded.transcript)
    crossed = [metered.ledger(r) for r in range(len(seeds))]
    found = [{}] * len(seeds) if canary else _measured(method, worlds, engine)
    inside = _inside(inner)
    recordings = []
    for r, seed in enumerate(seeds):
        mine = [(p, q, a) for run, p, q, a in said if run == r and isinstance(a, Message)]
        recordings.append(_recording(seed, worlds[r], mine, found[r], crossed[r], ledgers[r], inside, r))
    return recordings


Warm = dict[str, list[dict[str, Tensor]]]  # extractors after their warm-up, by what they were trained on and how


def _rows_and_warm_up(config: RunConfig, seeds: Sequence[int], method: Any) -> str:
    """Everything an extractor depends on before the first message made of labels."""
    parts = [getattr(method, name, None) for name in ("warm", "norm", "table", "width")]
    return repr((type(method).__name__, config.split_spec(), tuple(seeds), parts))


@dataclass
class _Once:
    """Answers `WarmUp` with extractors of an earlier recording of the same rows where there are some."""

    engine: Stacked
    store: Warm
    name: str

    def exchange(self, requests: Mapping[Address, Message]) -> Mapping[Address, Message]:
        if not all(isinstance(r, WarmUp) for r in requests.values()):
            return self.engine.exchange(requests)
        cohorts = [cohort for _, cohort in self.engine.cohorts]
        if self.name not in self.store:
            replies = self.engine.exchange(requests)
            self.store[self.name] = [_extractor(cohort) for cohort in cohorts]
            return replies
        for cohort, state in zip(cohorts, self.store[self.name], strict=True):
            cohort.restore(state)
            trained: Any = cohort.method
            cohort.method = replace(trained, warm=replace(trained.warm, epochs=0))  # only embed
        replies = self.engine.exchange(requests)
        for cohort in cohorts:
            cohort.method = trained
        return replies


def _extractor(cohort: Cohort) -> dict[str, Tensor]:
    return {name: t.clone() for name, t in cohort.state().items() if name.startswith("net.")}


def _measured(method: Any, worlds: Sequence[World], engine: Any) -> list[dict[str, Any]]:
    guessed = ask(method, worlds, engine, worlds[0].owner.parties)
    return [metrics.evaluate(p, w.labels.query, w.labels.unseen) for p, w in zip(guessed, worlds, strict=True)]


def _inside(engine: Stacked) -> dict[Address, tuple[Tensor, Tensor]]:
    """(aligned, pool) embeddings of every party's extractor as it is now; simulation only."""
    found: dict[Address, tuple[Tensor, Tensor]] = {}
    for members, cohort in engine.cohorts:
        aligned, pool = embed(cohort.net, cohort.rows.aligned), embed(cohort.net, cohort.rows.pool)
        found |= {address: (aligned[g], pool[g]) for g, address in enumerate(members)}
    return found


def _recording(
    seed: int,
    world: World,
    transcript: list[tuple[int, Message, Message]],
    found: dict[str, Any],
    crossed: dict[str, Any],
    ledger: Ledger,
    inside: dict[Address, tuple[Tensor, Tensor]],
    run: int,
) -> Recording:
    last = {p: q for p, q, _ in transcript if isinstance(q, Learn)}
    pools = {m: inside[run, m][1] for m in world.owner.parties}
    rates: dict[int, float] = {}
    for m, request in last.items():
        width = min(pools[m].shape[1], request.prototypes.shape[1])
        guess = cosine(pools[m][:, :width], request.prototypes[:, :width]).argmax(1)
        rates[m] = metrics.accuracy(guess.cpu(), world.labels.pools[m]) or 0.0
    own = {m: inside[run, m][0] for m in world.owner.parties}
    return Recording(seed, world, transcript, found, crossed, ledger, rates, own, pools)


def one_way_of(config: RunConfig) -> RunConfig:
    """The same rows with nothing made of labels sent down; its self-supervised encoders are any attacker's own."""
    mine = config.method == "proto_evfl" and not config.preset.startswith("paper")
    kept = {n: v for n, v in config.overrides.items() if mine and n.split(".")[0] in ("warm", "head", "layers")}
    return replace(config, method="proto_evfl", preset="one_way", overrides=kept)
