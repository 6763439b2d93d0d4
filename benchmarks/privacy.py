"""All privacy figures of docs/privacy.md as JSON lines: defended, undefended, one-way, paper flow,
gradient methods.

    python benchmarks/privacy.py --out privacy.jsonl --records label_inference.jsonl --aligned
    200,1000 --seeds 0-4
    python benchmarks/privacy.py --noise noise.jsonl --seeds 0-4          the paper's two tables of noise

Training runs on the GPU where there is one, a run and its canaries as one batched model; attacks
run meanwhile in processes on the CPU. The most important runs come first; what is in the file is
not run again; after --budget seconds nothing new is started. One line a finding: {"run", "aligned",
"threat", "known", "canary", "worst", "yardstick", "advantage", ...}, one line a run with its
accuracy, one with embedding inversion. --records gets records of the table of label inference, made
of the same runs (`protoevfl reproduce label_inference --merge`).
"""

import argparse
import json
import os
import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from protoevfl.audit import attack_records, rounds_of
from protoevfl.audit.figures import cases, extra, inversion, threats, utility, width_of
from protoevfl.audit.record import AUDIT, Recording, Warm, privacy_of, record, record_both
from protoevfl.bench import records
from protoevfl.bench.world import RunConfig
from protoevfl.cli.option_values import settings_for, whole_numbers
from protoevfl.codec import to
from protoevfl.distributed import choose_device
from protoevfl.messages import Learn
from protoevfl.observer import Observer
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.protocol import Attempt, Case, attempt, finding
from protoevfl.reproduction import privacy_tables
from protoevfl.reproduction.execute import execute
from protoevfl.reproduction.execute import plan as missing

CPU = torch.device("cpu")
FULL, SHORT = (0, 1, 4, 10), (0, 1)
Facts = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One run of the plan; stages of equal rank are done for every size before the next rank
    starts."""

    name: str
    method: str
    preset: str
    known: tuple[int, ...]
    rank: int
    overrides: Facts = field(default_factory=dict)
    canaries: int = 1
    table: bool = False  # stands in the table of label inference


def plan() -> list[Line]:
    """The most important first."""
    ours, noise = "proto_evfl", "privacy.prototype_noise"
    lines = [
        Line("one-way", ours, "one_way", SHORT, 0, table=True),
        Line("default", ours, "default", FULL, 0, canaries=3, table=True),
        Line("undefended", ours, "undefended", FULL, 1, table=True),
        Line("paper flow", ours, "paper", SHORT, 2, table=True),
        Line("vanilla", "vanilla", "default", SHORT, 3, table=True),
        Line("one_shot", "one_shot", "default", SHORT, 3, table=True),
        Line("fedhssl", "fedhssl", "default", SHORT, 4, table=True),
    ]
    for sigma in (2.0, 4.0, 10.0, 20.0):
        bare: Facts = {noise: sigma, "privacy.class_noise": 0.0}
        lines.append(Line(f"sigma {sigma:g}", ours, "default", SHORT, 5, bare, canaries=3))
    for rank in (8, 84):
        lines.append(
            Line(f"default, rank {rank}", ours, "default", SHORT, 6, {"privacy.rank": rank})
        )
    lines += [
        Line("default, 2 releases", ours, "default", SHORT, 6, {"privacy.releases": 2}),
        Line(
            "kappa 0.1 on prototypes",
            ours,
            "undefended",
            SHORT,
            6,
            {"privacy.prototype_kappa": 0.1},
        ),
        Line(
            "kappa 0.2 on prototypes",
            ours,
            "undefended",
            SHORT,
            6,
            {"privacy.prototype_kappa": 0.2},
        ),
        Line("randomised response 1", ours, "undefended", SHORT, 6, {"privacy.label_epsilon": 1.0}),
        Line("randomised response 3", ours, "undefended", SHORT, 6, {"privacy.label_epsilon": 3.0}),
        Line(
            "clip 1 and noise 0.1 on embeddings",
            ours,
            "default",
            (1,),
            6,
            {"privacy.clip": 1.0, "privacy.embedding_noise": 0.1},
        ),
    ]
    return lines


def on_cpu(case: Case) -> Case:
    """The case with all tensors on the CPU, for another process."""
    v = case.view
    moved = tuple(
        replace(e, request=to(e.request, CPU), reply=to(e.reply, CPU)) for e in v.exchanges
    )
    own, pool, wide, newest = (
        {p: t.cpu() for p, t in have.items()} for have in (v.own, v.pool, v.wide, v.newest)
    )
    sums = {stage: {p: t.cpu() for p, t in have.items()} for stage, have in v.sums.items()}
    view = replace(v, exchanges=moved, own=own, pool=pool, wide=wide, sums=sums, newest=newest)
    return Case(case.seed, view, case.labels.cpu())


def attack(
    blob: bytes,
    threat: str,
    known: tuple[int, ...],
    privacy: PrivacySettings,
    width: int,
    rounds: int,
) -> Facts:
    """The attempts of some cases at every k, in a process of its own."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    cases_of_threat: list[Case] = pickle.loads(blob)  # of this program's own making
    more = extra(threat, privacy, width, rounds)
    attempts = {k: [attempt(case, threat, k, more) for case in cases_of_threat] for k in known}
    return {"attempts": attempts, "seconds": time.perf_counter() - start}


@dataclass
class Stage:
    """A run under attack: written as a whole when its last attack is in."""

    line: Line
    config: RunConfig
    tags: Facts
    head: list[Facts]  # lines that need no attack
    real: list[Recording]
    seconds: float
    waiting: list[tuple[str, bool, Future[Facts]]] = field(default_factory=list)  # threat, canary

    def done(self) -> bool:
        return all(future.done() for *_, future in self.waiting)

    def lines(self) -> tuple[list[Facts], list[Facts]]:
        """(lines of figures, records of the table of label inference)."""
        attempts: dict[tuple[str, bool, int], list[Attempt]] = defaultdict(list)
        spent: dict[tuple[str, bool], float] = defaultdict(float)
        for threat, canary, future in self.waiting:
            result = future.result()
            spent[threat, canary] += result["seconds"]
            for k, of_case in result["attempts"].items():
                attempts[threat, canary, k] += of_case
        findings = []
        for (threat, canary, k), of_case in attempts.items():
            facts = finding(of_case, threat, k).as_json()
            findings.append(
                {**self.tags, "canary": canary, **facts, "attack_seconds": spent[threat, canary]}
            )
        table = []
        if self.line.table:
            parts = ([f for f in findings if f["canary"] is canary] for canary in (False, True))
            table = [
                {**r, **records.stamp()}
                for r in attack_records(self.config, self.real, *parts, self.seconds)
            ]
        return [*self.head, *(short(f) for f in findings)], table


def short(facts: Facts) -> Facts:
    """A finding with the best of every kind of attack in place of all its lines."""
    kinds: dict[str, float] = {}
    for line in facts["lines"]:
        if line["communicates"]:
            kind = line["attack"].split(",")[0]
            kinds[kind] = max(kinds.get(kind, 0.0), line["accuracy"])
    return {**{k: v for k, v in facts.items() if k != "lines"}, "by_kind": kinds}


class Bench:
    """Recordings in this process, attacks in others."""

    def __init__(
        self,
        seeds: list[int],
        dataset: str,
        device: str,
        workers: int,
        more: Facts,
        pool: int | None,
    ) -> None:
        self.seeds, self.dataset, self.device, self.more, self.rows = (
            seeds,
            dataset,
            device,
            more,
            pool,
        )
        self.processes = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        self.warm: Warm = {}
        self.silent: dict[int, list[Recording]] = {}

    def config(self, line: Line, aligned: int) -> RunConfig:
        given = {**line.overrides, **(self.more if line.method == "proto_evfl" else {})}
        if line.preset == "one_way":
            given.pop("rounds.count", None)
        return RunConfig(
            dataset=self.dataset,
            method=line.method,
            preset=line.preset,
            aligned=aligned,
            pool=self.rows,
            overrides=given,
        )

    def start(self, line: Line, aligned: int) -> Stage:
        """Trains; the attacks go to the processes."""
        if aligned not in self.silent:
            way = self.config(plan()[0], aligned)
            self.silent[aligned] = record(way, self.seeds, device=self.device, warm=self.warm)
        start = time.perf_counter()
        config = self.config(line, aligned)
        plain, privacy = privacy_of(config)
        real, hidden = record_both(
            config, self.seeds, canaries=line.canaries, device=self.device, warm=self.warm
        )
        tags = {
            "run": line.name,
            "aligned": aligned,
            "privacy": asdict(privacy),
            "seeds": self.seeds,
        }
        trained = time.perf_counter() - start
        head = [self.head(tags, real, privacy, trained)]
        if line.name in ("undefended", "clip 1 and noise 0.1 on embeddings"):
            head.append({**tags, "inversion": inversion(real)})
        marked = replace(config, overrides={**config.overrides, AUDIT: True})
        stage = Stage(line, marked, tags, head, [], 0.0)
        for recordings, canary, known in ((real, False, line.known), (hidden, True, (0,))):
            silent = self.silent[aligned] * (line.canaries if canary else 1)
            groups = cases(recordings, silent, plain, privacy)
            for threat, blob, ks in batches(groups, rounds_of(real), known):
                job = (blob, threat, ks, privacy, width_of(groups), rounds_of(real))
                stage.waiting.append((threat, canary, self.processes.submit(attack, *job)))
        stage.real = [
            replace(r, transcript=[t for t in r.transcript if isinstance(t[1], Learn)])
            for r in real
        ]
        stage.seconds = (time.perf_counter() - start) / len(self.seeds)
        return stage

    def head(
        self, tags: Facts, real: list[Recording], privacy: PrivacySettings, seconds: float
    ) -> Facts:
        """Utility, what was spent, what is proven, what it cost."""
        first = real[0]
        n, z, parties = (
            len(first.world.owner.labels),
            first.world.owner.classes,
            first.world.owner.parties[1:],
        )
        memory = (
            torch.cuda.max_memory_allocated() / 2**20
            if choose_device(self.device) == "cuda"
            else None
        )
        bound = {
            name: privacy.guess_bound(n, z, rounds_of(real), receivers)
            if privacy.guards_labels
            else None
            for name, receivers in (("guess_bound", 1), ("coalition_guess_bound", len(parties)))
        }
        return {
            **tags,
            **bound,
            "utility": utility(real),
            "seconds": seconds,
            "peak_memory_mb": memory,
            "epsilon": first.ledger.epsilon(1, "down"),
            "coalition": first.ledger.coalition(parties),
            "up": first.ledger.epsilon(1, "up"),
            **records.stamp(),
        }


def batches(
    groups: list[list[Case]], rounds: int, known: tuple[int, ...]
) -> Iterator[tuple[str, bytes, tuple[int, ...]]]:
    """(threat, pickled cases of one run, known labels): small enough to keep all processes busy to
    the end."""
    for group in groups:
        for threat, cases_of_threat in threats([group], rounds).items():
            ks = known if threat == "passive" else tuple(k for k in known if k < 2)
            if ks:
                yield threat, pickle.dumps([on_cpu(case) for case in cases_of_threat]), ks


def stages(given: argparse.Namespace, seeds: list[int]) -> list[tuple[int, Line]]:
    """What is missing, in order: by rank, then by size; the curves of the last ranks with the first
    size only."""
    sizes = whole_numbers(given.aligned, "--aligned")
    wanted = [line for line in plan() if not given.only or line.name in given.only.split(";")]
    there = {
        (r["run"], r["aligned"], tuple(r["seeds"]))
        for r in records.read(given.out)
        if "utility" in r
    }
    ordered = sorted(
        ((line.rank, n, line) for line in wanted for n in sizes if line.rank < 5 or n == sizes[0]),
        key=_first,
    )
    return [(n, line) for _, n, line in ordered if (line.name, n, tuple(seeds)) not in there]


def _first(item: tuple[int, int, Line]) -> tuple[int, int]:
    return item[:2]


def attack_all(given: argparse.Namespace, seeds: list[int]) -> None:
    start = time.perf_counter()
    more = settings_for(["proto_evfl"], given.set)["proto_evfl"]
    bench = Bench(seeds, given.dataset, given.device, given.workers, more, given.pool)
    todo, under_way = stages(given, seeds), list[Stage]()

    def tell(text: str) -> None:
        print(f"{time.perf_counter() - start:6.1f} s  {text}", flush=True)

    def write(ready: Callable[[Stage], bool]) -> None:
        for stage in [s for s in under_way if ready(s)]:
            under_way.remove(stage)
            figures, table = stage.lines()
            for path, lines in ((given.out, figures), (given.records, table)):
                for facts in lines if path else ():
                    records.append(Path(path), facts)
            tell(f"{stage.tags['aligned']} {stage.line.name}: written")

    for place, (aligned, line) in enumerate(todo):
        if time.perf_counter() - start > given.budget:
            tell(f"budget spent: {len(todo) - place} runs left; the same command goes on from here")
            break
        under_way.append(bench.start(line, aligned))
        tell(f"{aligned} {line.name}: trained in {under_way[-1].head[0]['seconds']:.1f} s")
        write(Stage.done)
    for stage in list(under_way):
        write(lambda one, stage=stage: one is stage)  # type: ignore[misc]
    bench.processes.shutdown()
    tell("done")


def noise_tables(given: argparse.Namespace, seeds: list[int]) -> None:
    """Both tables of noise, by importance; resumes."""
    path = Path(given.noise)
    jobs = missing(
        [privacy_tables.NOISE_REPRESENTATIONS, privacy_tables.NOISE_PROTOTYPES],
        seeds,
        records.read(path),
    )
    start = time.perf_counter()

    class Printed(Observer):
        def finished(self, text: str, done: int, total: int) -> None:
            print(f"{time.perf_counter() - start:6.1f} s  {text}", flush=True)

    outcome = execute(jobs, path, device=given.device, budget=given.budget, observer=Printed())
    failed = f"{len(outcome.failures)} failed {outcome.failures or ''}"
    print(f"{outcome.left_out} left, {failed}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="privacy.jsonl")
    parser.add_argument(
        "--records", default="", help="file for records of the table of label inference"
    )
    parser.add_argument(
        "--noise",
        default="",
        help="file for records of the tables of noise; then nothing else is run",
    )
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--aligned", default="200,1000")
    parser.add_argument("--pool", type=int, help="unaligned rows of each party, for a quick look")
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--only", default="", help="names of runs, separated by ;")
    parser.add_argument(
        "--budget", type=float, default=1e9, help="seconds after which no further run is started"
    )
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--set", action="append", default=[], help="settings of proto_evfl, for a quick look"
    )
    given = parser.parse_args()
    seeds = whole_numbers(given.seeds, "--seeds")
    (noise_tables if given.noise else attack_all)(given, seeds)
    if given.out and not given.noise:
        done = {(r["run"], r["aligned"]) for r in records.read(given.out) if "utility" in r}
        print(json.dumps(sorted(map(list, done))), flush=True)


if __name__ == "__main__":
    main()
