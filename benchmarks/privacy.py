"""All privacy figures of docs/privacy.md as JSON lines: undefended, defended, one-way, gradient methods.

    python benchmarks/privacy.py --out privacy.jsonl --aligned 200,1000 --seeds 0-4

Training runs on the GPU where there is one; attacks run meanwhile in processes on the CPU. One line a finding:
{"run", "aligned", "threat", "known", "canary", "attack", "accuracy", "half", "yardstick", "advantage", ...}, one line a
run with its accuracy, one line with embedding inversion.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from protoevfl.audit.figures import cases, inversion, utility
from protoevfl.audit.record import Recording, Warm, privacy_of, record
from protoevfl.cli_values import settings_for, whole_numbers
from protoevfl.guarded import noise_of
from protoevfl.messages import Message, to
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.protocol import Case, investigate, malicious
from protoevfl.privacy.view import Exchange, View, together
from protoevfl.run import RunConfig

CPU = torch.device("cpu")
DEFAULT = {"privacy.prototype_noise": 4.0, "privacy.class_noise": 0.2, "privacy.releases": 1, "privacy.rank": 16}
FULL, SHORT = (0, 1, 4, 10), (0, 1)


def plan() -> list[tuple[str, str, str, dict[str, Any], tuple[int, ...]]]:
    """(name, method, preset, overrides, known labels), the most important first."""
    noise = "privacy.prototype_noise"
    bare: dict[str, Any] = {noise: 0.0, "privacy.class_noise": 0.0}
    lines: list[tuple[str, str, str, dict[str, Any], tuple[int, ...]]] = [
        ("one-way", "proto_evfl", "one_way", {}, ()),
        ("undefended", "proto_evfl", "default", bare, FULL),
        ("default", "proto_evfl", "default", DEFAULT, FULL),
        ("paper flow", "proto_evfl", "paper", bare, SHORT),
        ("vanilla", "vanilla", "default", {}, SHORT),
    ]
    for sigma in (1.0, 2.0, 3.0, 6.0, 10.0, 20.0):
        lines.append(
            (f"sigma {sigma:g}", "proto_evfl", "default", {**DEFAULT, noise: sigma, "privacy.class_noise": 0.0}, SHORT)
        )
    for rank in (8, 84):
        lines.append((f"default, rank {rank}", "proto_evfl", "default", {**DEFAULT, "privacy.rank": rank}, SHORT))
    lines += [
        ("default, 2 releases", "proto_evfl", "default", {**DEFAULT, "privacy.releases": 2}, SHORT),
        ("kappa 0.1 on prototypes", "proto_evfl", "default", {**bare, "privacy.prototype_kappa": 0.1}, SHORT),
        ("kappa 0.2 on prototypes", "proto_evfl", "default", {**bare, "privacy.prototype_kappa": 0.2}, SHORT),
        ("randomised response 1", "proto_evfl", "default", {**bare, "privacy.label_epsilon": 1.0}, SHORT),
        ("randomised response 3", "proto_evfl", "default", {**bare, "privacy.label_epsilon": 3.0}, SHORT),
        ("clip 1 and noise 0.1 on embeddings", "proto_evfl", "default",
         {**DEFAULT, "privacy.clip": 1.0, "privacy.embedding_noise": 0.1}, (1,)),
        ("fedhssl", "fedhssl", "default", {}, SHORT),
        ("one_shot", "one_shot", "default", {}, SHORT),
    ]  # fmt: skip
    return lines


def on_cpu(case: Case) -> Case:
    """The case with all tensors on the CPU, for another process."""

    def moved(message: Message) -> Message:
        return to(message, CPU)

    v: View = case.view
    exchanges = tuple(Exchange(e.party, moved(e.request), moved(e.reply)) for e in v.exchanges)
    own, pool, wide = ({p: t.cpu() for p, t in have.items()} for have in (v.own, v.pool, v.wide))
    return Case(case.seed, replace(v, exchanges=exchanges, own=own, pool=pool, wide=wide), case.labels.cpu())


def one_finding(
    group: list[Case], threat: str, known: int, privacy: PrivacySettings, width: int, rounds: int
) -> dict[str, Any]:
    """A finding in a process of its own."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    extra = malicious(privacy, width, rounds, noise_of) if threat == "malicious" else None
    facts = investigate(group, threat, known, extra).as_json()
    kinds: dict[str, float] = {}
    for line in facts.pop("lines"):
        if line["communicates"]:
            kind = line["attack"].split(",")[0]
            kinds[kind] = max(kinds.get(kind, 0.0), line["accuracy"])
    return {**facts, "by_kind": kinds, "attack_seconds": time.perf_counter() - start}


class Bench:
    """Recordings in this process, attacks in others."""

    def __init__(self, seeds: list[int], dataset: str, device: str, workers: int, more: dict[str, Any]) -> None:
        self.seeds, self.dataset, self.device, self.more = seeds, dataset, device, more
        self.pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        self.waiting: list[tuple[dict[str, Any], Future[dict[str, Any]]]] = []
        self.warm: Warm = {}
        self.silent: list[Recording] = []

    def run(
        self, aligned: int, name: str, method: str, preset: str, overrides: dict[str, Any], known: tuple[int, ...]
    ) -> Iterator[dict[str, Any]]:
        """Yields the utility line; the attacks go to the pool."""
        start = time.perf_counter()
        extra = self.more if method == "proto_evfl" else {}
        config = RunConfig(
            dataset=self.dataset, method=method, preset=preset, aligned=aligned, overrides={**overrides, **extra}
        )
        plain, privacy = privacy_of(config)
        real = record(config, self.seeds, device=self.device, warm=self.warm)
        if name == "one-way":
            self.silent = real
        tags = {"run": name, "aligned": aligned, "privacy": asdict(privacy)}
        if known:
            hidden = record(config, self.seeds, device=self.device, canary=True, warm=self.warm)
            self.submit(tags, real, plain, privacy, known, canary=False)
            self.submit(tags, hidden, plain, privacy, (0,), canary=True)
        ledger, n, z = real[0].ledger, len(real[0].world.owner.labels), real[0].world.owner.classes
        spent: dict[str, Any] = {
            "epsilon": ledger.epsilon(1, "down"),
            "coalition": ledger.coalition(range(1, 4)),
            "up": ledger.epsilon(1, "up"),
        }
        spent["guess_bound"] = privacy.guess_bound(n, z, self.rounds(real)) if privacy.guards_labels else None
        yield {**tags, "utility": utility(real), "seconds": time.perf_counter() - start, **spent}
        if name in ("undefended", "clip 1 and noise 0.1 on embeddings"):
            yield {**tags, "inversion": inversion(real)}

    @staticmethod
    def rounds(recordings: list[Recording]) -> int:
        return sum(p == 1 and type(q).__name__ == "Learn" for p, q, _ in recordings[0].transcript)

    def submit(
        self,
        tags: dict[str, Any],
        found: list[Recording],
        plain: RunConfig,
        privacy: PrivacySettings,
        known: tuple[int, ...],
        canary: bool,
    ) -> None:
        groups = [[on_cpu(c) for c in group] for group in cases(found, self.silent, plain, privacy)]
        single = [c for group in groups for c in group]
        joint = [Case(g[0].seed, together(c.view for c in g), g[0].labels) for g in groups]
        rounds = self.rounds(found)
        threats = {"passive": single, "colluding": joint} | ({"malicious": [g[0] for g in groups]} if rounds else {})
        for threat, group in threats.items():
            for k in known if threat == "passive" else [k for k in known if k < 2]:
                future = self.pool.submit(one_finding, group, threat, k, privacy, 84, rounds)
                self.waiting.append(({**tags, "canary": canary}, future))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="privacy.jsonl")
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--aligned", default="200,1000")
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--only", default="", help="names of runs, separated by ;")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further run is started")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], help="settings of proto_evfl, for a quick look")
    given = parser.parse_args()
    more = settings_for(["proto_evfl"], given.set)["proto_evfl"]
    bench = Bench(whole_numbers(given.seeds, "--seeds"), given.dataset, given.device, given.workers, more)
    chosen = [line for line in plan() if not given.only or line[0] in given.only.split(";")]
    start = time.perf_counter()
    with Path(given.out).open("a") as file:

        def write(facts: dict[str, Any]) -> None:
            file.write(json.dumps(facts) + "\n")
            file.flush()

        sizes = whole_numbers(given.aligned, "--aligned")
        first = {"one-way", "undefended", "default", "paper flow"}  # of every size before the rest of any
        stages = [(n, line) for n in sizes for line in chosen if line[0] in first or n == sizes[0]]
        stages += [(n, line) for n in sizes[1:] for line in chosen if line[0] not in first]
        done = 0
        silent: dict[int, list[Recording]] = {}
        for aligned, line in stages:
            if time.perf_counter() - start > given.budget:
                break
            bench.silent = silent.get(aligned, [])
            for facts in bench.run(aligned, *line):
                write(facts)
            silent[aligned] = bench.silent
            done += 1
            print(f"{time.perf_counter() - start:6.1f} s  {aligned} {line[0]}", flush=True)
        print(f"{done} of {len(stages)} runs, {len(bench.waiting)} attack tables under way", flush=True)
        for tags, future in bench.waiting:
            write({**tags, **future.result()})
    bench.pool.shutdown()
    print(f"{time.perf_counter() - start:6.1f} s  done", flush=True)


if __name__ == "__main__":
    main()
