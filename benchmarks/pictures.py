"""How much must a company send of a picture? Accuracy of the joint model against what a decoder
rebuilds of the pixels, over numbers per row and noise.

    python benchmarks/pictures.py --dataset modelnet10 --seeds 20-22 --out pictures.jsonl
    python benchmarks/pictures.py --table pictures.jsonl

Beside the figures of `protoevfl bench`, per party: R² over all pixels of the best decoder, fitted on
four fifths of the rows to be predicted and tried on the rest (privacy/gives_away.py).
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from protoevfl.bench import records
from protoevfl.bench.run import run
from protoevfl.bench.world import RunConfig, World
from protoevfl.cli.option_values import whole_numbers
from protoevfl.federation.federation import Federation
from protoevfl.privacy.gives_away import columns_of, gives_away

LEVELS: dict[str, Mapping[str, Any]] = {
    "open": {},
    **{
        f"{count} numbers": {"columns": "few", "few": count, "rounds.count": 0}
        for count in (4, 8, 16, 32, 64)
    },
    **{
        f"open, noise {noise:g}": {"privacy.clip": 1.0, "privacy.embedding_noise": noise}
        for noise in (0.01, 0.03, 0.1)
    },
}


def rebuilt(federation: Federation, world: World, number: int) -> dict[str, Any]:
    """What decoders make of the pictures of each party but the label owner."""
    sent = federation.query_embeddings(number)
    return {
        "rebuilt": {
            str(party): gives_away(columns_of(world.tables[party].query, None), values)["picture"]
            for party, values in sent.items()
            if party
        }
    }


def table(path: str) -> None:
    """One line per data set and level: mean over seeds, rebuilt also over parties."""
    cells = defaultdict(list)
    for record in records.read(path):
        cells[record["dataset"], record["level"]].append(record["metrics"])
    for (dataset, level), metrics in cells.items():
        accuracy = [100 * m["accuracy"] for m in metrics]
        parts = [part for m in metrics for part in m["rebuilt"].values()]
        print(
            f"| {dataset} | {level} | {sum(accuracy) / len(accuracy):.1f} "
            f"| {sum(parts) / len(parts):.2f} | {max(parts):.2f} | {len(metrics)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures: accuracy against what is rebuilt.")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--levels", nargs="*", default=list(LEVELS))
    parser.add_argument("--seeds", default="20-22")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", default="pictures.jsonl")
    parser.add_argument("--table", default="", help="print the table of this file and end")
    options = parser.parse_args()
    if options.table:
        table(options.table)
        return
    seeds = whole_numbers(options.seeds, "--seeds")
    for level in options.levels:
        config = RunConfig(dataset=options.dataset, overrides=LEVELS[level])
        done = run(config, seeds, device=options.device, also=rebuilt)
        records.append(
            options.out, *({**record, **records.stamp(), "level": level} for record in done)
        )


if __name__ == "__main__":
    main()
