"""Classes without labels: records of `bench` with further figures of the same trained runs.

    python benchmarks/unseen.py --dataset modelnet10 --sets 0 1 2,3 --seeds 811-815 --out unseen.jsonl

Beside the figures of `protoevfl bench --setting zero_shot`, from the same embeddings:

    without_slot     seen accuracy where classes without labels are left alone
    open             with an open class list: whether the open test fires, on what evidence, and the
                     accuracy where rows of classes without labels should be in the last column
    single_rows      H of one half of the rows, asked for 100 at a time after the other half was
                     predicted as a batch, and H of the same rows as a batch
    predict_seconds  of one batch

Runs that are in the file are not run again.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from protoevfl.bench import records
from protoevfl.bench.run import run
from protoevfl.bench.world import RunConfig, World
from protoevfl.cli.option_values import whole_numbers
from protoevfl.core import metrics
from protoevfl.federation.federation import Federation
from protoevfl.methods.deciding import decide
from protoevfl.methods.proto_evfl import ProtoEVFL


def figures(
    federation: Federation, world: World, number: int, single: bool = True
) -> dict[str, Any]:
    """The further figures of one trained run; `single` rows take the most time."""
    method, owner = federation.methods[number], world.owner
    if not isinstance(method, ProtoEVFL):
        return {}
    sent = federation.query_embeddings(number)
    f = torch.stack([sent[m].to(owner.device) for m in owner.parties])
    everyone = torch.ones(len(owner.parties), dtype=torch.bool, device=owner.device)
    unseen = world.labels.unseen
    # test rows may be sorted by class
    order = torch.randperm(f.shape[1], generator=torch.Generator().manual_seed(world.seed))
    f, truth = f[:, order.to(f.device)], world.labels.query[order]
    owner = replace(owner, examples={})  # their rows have moved
    start = time.perf_counter()
    decide(method, owner, f, everyone).cpu()
    found: dict[str, Any] = {"predict_seconds": time.perf_counter() - start}
    undeclared = replace(owner, unseen=(), rare=(), open=True, memory=dict(owner.memory))
    guess = decide(method, undeclared, f, everyone).argmax(1).cpu()
    nameless = torch.isin(truth, torch.tensor(unseen, dtype=truth.dtype))
    memory, pools = undeclared.memory, owner.memory.get("strength")
    found["open"] = {
        "fires": bool(memory["open_fires"]),
        "strength": float(memory["open_strength"]),
        "accuracy": metrics.accuracy(guess, truth.masked_fill(nameless, owner.classes)),
        "pools": None if pools is None else pools.tolist(),
    }
    if not unseen:
        return found
    alone = decide(method, replace(undeclared, open=False), f, everyone)
    found["without_slot"] = metrics.evaluate(alone.cpu(), truth, unseen)["seen_accuracy"]
    if not single:
        return found
    half = f.shape[1] // 2
    later = replace(owner, memory=dict(owner.memory))
    decide(method, later, f[:, :half], everyone)
    few = [decide(method, later, part, everyone) for part in f[:, half:].split(100, dim=1)]
    batch = decide(method, later, f[:, half:], everyone)
    found["single_rows"] = {
        "harmonic_mean": metrics.evaluate(torch.cat(few).cpu(), truth[half:], unseen)[
            "harmonic_mean"
        ],
        "as_a_batch": metrics.evaluate(batch.cpu(), truth[half:], unseen)["harmonic_mean"],
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Classes without labels, with further figures.")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--setting", default="zero_shot")
    parser.add_argument("--sets", nargs="*", default=["3"], help="class sets: 0 1 2,3")
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--method", default="proto_evfl")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--side", default="")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", default="unseen.jsonl")
    options = parser.parse_args()
    seeds = whole_numbers(options.seeds, "--seeds")
    for classes in options.sets:
        config = RunConfig(
            dataset=options.dataset,
            method=options.method,
            preset=options.preset,
            setting=options.setting,
            classes=() if classes == "none" else tuple(whole_numbers(classes, "--sets")),
            side=options.side,
        )
        past = records.read(options.out) if Path(options.out).exists() else []
        left = [seeds_left for _, seeds_left in records.missing([config], seeds, past)]
        done = run(config, left[0], device=options.device, also=figures) if left else []
        records.append(options.out, *({**record, **records.stamp()} for record in done))
        for record in done:
            shown = record["metrics"]
            print(
                options.dataset,
                options.method,
                options.setting,
                classes,
                record["seed"],
                {
                    name: shown.get(name)
                    for name in (
                        "accuracy",
                        "harmonic_mean",
                        "seen_accuracy",
                        "unseen_recall",
                        "matched_unseen",
                        "rare_recall",
                        "balanced_accuracy",
                        "unseen_sureness",
                        "without_slot",
                        "single_rows",
                        "open",
                        "predict_seconds",
                    )
                    if shown.get(name) is not None
                },
                flush=True,
            )


if __name__ == "__main__":
    main()
