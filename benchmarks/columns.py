"""How much must a company send? AUC of the joint model against what a decoder rebuilds of columns.

    python benchmarks/columns.py company_files/protoevfl.toml ... --out columns.jsonl
    python benchmarks/columns.py --table columns.jsonl

One line per configuration, number of principal components per row and partner, and how they are
blurred. "all" is what a party sends today (methods/table_features.py). The active party's own model
is beside them throughout.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from protoevfl.methods.joint import fit_joint
from protoevfl.methods.own_model import OwnModelSettings, own_scores, train_own_model
from protoevfl.methods.table_features import learn_features, table_features
from protoevfl.pipeline.one_process import prepare
from protoevfl.pipeline.prepare import OneParty, Prepared
from protoevfl.pipeline.simulate import method_and_privacy
from protoevfl.pipeline.train import owner_of
from protoevfl.privacy.gives_away import columns_of, gives_away
from protoevfl.settings.config import load

COUNTS = (1, 2, 4, 8, 16, 64, 0)  # numbers per row and partner; 0: all that are sent today
# (noise added, step to which numbers are rounded), both in spreads of the first component
BLURS = ((0.0, 0.0), (0.3, 0.0), (1.0, 0.0), (3.0, 0.0), (0.0, 0.5), (0.0, 1.0))


def components(own: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(centre, basis (d, count) that makes the first component of the own rows (n, d) of spread 1)."""
    centre = own.mean(0)
    _, spread, directions = torch.linalg.svd(own[:20_000] - centre, full_matrices=False)
    scale = spread[0] / min(len(own), 20_000) ** 0.5
    return centre, directions[: count or None].T / scale


def numbers_sent(part: OneParty, count: int) -> list[Tensor]:
    """What a party sends of its shared rows and of its query rows, before they are blurred."""
    table = part.table
    own = torch.cat([table.pool, table.aligned])
    shared_and_query = [table.aligned, table.query]
    if not count:
        learnt = learn_features(own[None], table.numbers)
        return [table_features(rows[None], table.numbers, **learnt)[0] for rows in shared_and_query]
    centre, basis = components(own, count)
    return [(rows - centre) @ basis for rows in shared_and_query]


def blurred(numbers: Tensor, noise: float, step: float, draw: torch.Generator) -> Tensor:
    noisy = numbers + noise * torch.randn(numbers.shape, generator=draw)
    return (noisy / step).round() * step if step else noisy


def frontier(path: Path, counts: Sequence[int]) -> Iterator[dict[str, Any]]:
    """One record per number of components and blur."""
    config = load(path)
    world: Prepared = prepare(config)
    method, _ = method_and_privacy(config)
    owner = owner_of(
        method, world.labels, len(world.classes), len(world.parties), config.seed,
        world.unseen, world.own, world.further,
    )  # fmt: skip
    assert owner.own is not None
    train_own_model(owner, OwnModelSettings())
    own = owner.memory["own.shared"].double().numpy()
    own_query = own_scores(owner, owner.own.query).double().numpy()
    truth = world.test_labels.numpy()
    place = {"config": path.parent.name}
    alone = float(roc_auc_score(truth, own_query[:, 1]))
    yield {**place, "count": None, "noise": 0.0, "step": 0.0, "auc": alone, "columns": {}}
    others = world.parties[1:]
    for count in counts:
        sent = [numbers_sent(part, count) for part in others]
        for noise, step in BLURS:
            draw = torch.Generator().manual_seed(config.seed)
            left = [[blurred(x, noise, step, draw) for x in pair] for pair in sent]
            shared, query = (
                torch.cat(x, 1).double().numpy()[None] for x in zip(*left, strict=True)
            )
            joint = fit_joint(own, shared, world.labels.numpy())
            auc = float(roc_auc_score(truth, joint.predict(own_query, query)[:, 1]))
            columns: dict[str, float] = {}
            for part, (_, sent_queries) in zip(others, left, strict=True):
                table = part.table
                names = part.encoder.columns
                true_columns = columns_of(table.query, table.spans, table.numbers, names)
                columns |= gives_away(true_columns, sent_queries)
            yield {
                **place, "count": count, "noise": noise, "step": step,
                "auc": auc, "columns": columns,
            }  # fmt: skip


def table(path: Path) -> str:
    """Markdown: means over the configurations of one data set (the name before the last _)."""
    groups = defaultdict(list)
    for text in path.read_text().splitlines():
        entry = json.loads(text)
        name = entry["config"].rsplit("_", 1)[0]
        groups[name, entry["count"], entry["noise"], entry["step"]].append(entry)
    heads = ("data", "numbers", "noise", "rounded to", "AUC", "columns: mean", "most", "each")
    lines = [heads, ("---",) * len(heads)]
    names = {None: "alone", 0: "all"}
    for (name, count, noise, step), entries in groups.items():
        auc = 100 * np.mean([entry["auc"] for entry in entries])
        scores = {
            column: np.mean([entry["columns"][column] for entry in entries])
            for column in entries[0]["columns"]
        }
        mean = np.mean(list(scores.values())) if scores else 0
        each = ", ".join(f"{column} {score:.2f}" for column, score in scores.items())
        most = max(scores.values(), default=0)
        cells = (name, names.get(count, count), noise, step, f"{auc:.1f}", f"{mean:.2f}")
        lines.append((*map(str, cells), f"{most:.2f}", each))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=Path("columns.jsonl"))
    parser.add_argument("--counts", type=int, nargs="*", default=COUNTS)
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    if given.table:
        print(table(given.table))
    for config_path in given.configs:
        for entry in frontier(config_path, given.counts):
            print(json.dumps({**entry, "columns": ""}), flush=True)
            with given.out.open("a") as file:
                file.write(json.dumps(entry) + "\n")
