"""`protoevfl tune`: the search of `protoevfl.bench.tune`, one line per trial, best setting last."""

import json
from typing import Annotated

from typer import Option

from protoevfl.bench import records
from protoevfl.cli.option_values import ALIGNED, DEVICE, PARTIES, POOL, check_device, whole_numbers
from protoevfl.progress import Bars


def tune(
    method: Annotated[str, Option(help="The method to search for.")] = "proto_evfl",
    dataset: Annotated[str, Option(help="The data set to search on.")] = "digits",
    budget: Annotated[
        int, Option(help="Settings tried, the preset itself included; the same for every method.")
    ] = 6,
    seeds: Annotated[
        str, Option(help="Seeds of the search; apart from those of reported runs.")
    ] = "100,101",
    aligned: ALIGNED = 200,
    parties: PARTIES = 4,
    pool: POOL = None,
    labels: Annotated[str, Option(help="shared, or all labels of the active party.")] = "shared",
    device: DEVICE = "auto",
    out: Annotated[
        str | None, Option(help="Add the whole search to this file, one JSON line.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the whole search as JSON.")] = False,
) -> None:
    """Search a method's settings on a validation part of the aligned rows; test rows are not looked
    at."""
    check_device(device)
    if out is not None:
        records.check_writable(out)
    numbers = whole_numbers(seeds, "--seeds")

    from protoevfl.bench import tune as search
    from protoevfl.observer import Terminal
    from protoevfl.rows import sources

    sources.load(dataset)  # an unknown name or a missing file is said at once
    with Bars() as bars:
        bars.show("runs", 0, 0, f"{method} on {dataset}")
        tuned = search.tune(
            method,
            dataset,
            budget,
            numbers,
            device,
            aligned=aligned,
            parties=parties,
            pool=pool,
            labels=labels,
            observer=Terminal(bars),
        )
    whole = tuned.as_json()
    if out is not None:
        records.append(out, whole)
    if as_json:
        print(json.dumps(records.finite(whole)))
        return
    best = tuned.best
    print(f"best of {len(tuned.trials)}: {best.line(1 + tuned.trials.index(best))}")
    print(json.dumps({dataset: dict(best.overrides)}))  # a preset of presets/METHOD.json
