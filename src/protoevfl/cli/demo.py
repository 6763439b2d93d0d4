"""`protoevfl demo`: embedded digits, four parties, a class without any label; nothing to download,
nothing written."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from typer import Option

from protoevfl.cli import tables as cli_tables
from protoevfl.cli.bench import observer_of
from protoevfl.cli.option_values import DEVICE, check_device
from protoevfl.progress import Bars, note

UNSEEN = 3  # fixed beforehand, not chosen by result
METHODS = {"local": "Local", "vanilla": "Vanilla VFL", "proto_evfl": "Proto-EVFL"}
# shorter training than the default; the others are as short by default
PRESETS = {"proto_evfl": "demo"}
TITLES = ("accuracy %", "seen %", "unseen %", "bytes", "rounds", "seconds")
INTRODUCTION = (
    "1,797 pictures of handwritten digits, bundled with scikit-learn. Four parties hold two "
    "quarters of each picture.\nThey share 180 labelled rows; each has 250 more rows of its own, "
    "unlabelled and unevenly spread over the digits.\n"
    f"No shared row shows the digit {UNSEEN}: the labels know nine classes, the test rows have ten."
)


def demo(
    seed: Annotated[int, Option(help="Another seed draws other rows and weights.")] = 0,
    device: DEVICE = "auto",
    as_json: Annotated[bool, Option("--json", help="Print the records as JSON.")] = False,
) -> None:
    """Four parties, one class nobody labelled: three methods compared in about a minute."""
    check_device(device)
    note(INTRODUCTION)
    records = _train(seed, device)
    if as_json:
        print(json.dumps({"records": list(records.values()), "sentence": _sentence(records)}))
        return
    groups = {METHODS[name]: [record] for name, record in records.items()}
    columns = [c for c in cli_tables.COLUMNS if c.title in TITLES]
    cli_tables.show(f"digits, 4 parties, digit {UNSEEN} in no label", "method", groups, columns)
    print(_sentence(records))


def _train(seed: int, device: str) -> dict[str, dict[str, Any]]:
    """One record per method."""
    import torch

    from protoevfl.bench.run import run
    from protoevfl.bench.world import RunConfig

    torch.set_num_threads(1)  # pictures of 8 x 8: more threads only wait for each other
    records: dict[str, dict[str, Any]] = {}
    with Bars() as bars:
        for done, (name, title) in enumerate(METHODS.items()):
            bars.show("all", done, len(METHODS), "methods")
            bars.show("run", 0, 0, title)
            config = RunConfig(
                dataset="digits",
                method=name,
                preset=PRESETS.get(name, "default"),
                setting="zero_shot",
                classes=(UNSEEN,),
            )
            observer = observer_of(bars, title)
            records[name] = run(config, [seed], device=device, observer=observer)[0]
    return records


def _sentence(records: Mapping[str, Mapping[str, Any]]) -> str:
    """What the table shows, from its numbers."""
    proto_evfl, vanilla = records["proto_evfl"], records["vanilla"]
    a, b = (100 * (r["metrics"]["unseen_recall"] or 0.0) for r in (proto_evfl, vanilla))
    bytes_a, bytes_b = map(cli_tables.both_ways, (proto_evfl, vanilla))
    cost = (
        f"{bytes_b / bytes_a:,.0f} times fewer bytes" if 0 < bytes_a < bytes_b else "no fewer bytes"
    )
    if a <= b:
        verdict = (
            "No method finds"
            if b == 0
            else f"Vanilla VFL finds {b:.0f} % and Proto-EVFL {a:.0f} % of"
        )
        return (
            f"{verdict} the rows of digit {UNSEEN}; Proto-EVFL sends {cost} than Vanilla VFL, and "
            "no gradient."
        )
    return (
        f"Nobody has a label for digit {UNSEEN}: Vanilla VFL finds {b:.0f} % of its rows, "
        f"Proto-EVFL {a:.0f} %, with {cost} and without any gradient sent."
    )
