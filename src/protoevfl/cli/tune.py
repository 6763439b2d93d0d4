"""`protoevfl tune`: the search of `protoevfl.bench.tune`, told as it goes, best setting last."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from protoevfl.bench import records
from protoevfl.cli.tables import percent
from protoevfl.progress import Bars

if TYPE_CHECKING:
    from protoevfl.bench.tune import Trial


def search(
    method: str,
    dataset: str,
    budget: int,
    seeds: Sequence[int],
    device: str,
    aligned: int,
    parties: int,
    pool: int | None,
    labels: str,
    out: str | None,
    as_json: bool,
) -> None:
    """Runs it and prints one line a trial and the preset entry of the best."""
    from protoevfl.bench.tune import candidates, tune
    from protoevfl.rows import sources

    sources.load(dataset)  # an unknown name or a missing file is told at once
    total, seen = len(candidates(method, dataset, max(budget, 0), labels)), list["Trial"]()
    with Bars() as bars:
        bars.show("trials", 0, total, f"{method} on {dataset}")

        def watch(trial: "Trial") -> None:
            seen.append(trial)
            bars.note(_told(len(seen), trial))
            bars.show("trials", len(seen), total, f"{method} on {dataset}")

        try:
            found = tune(
                method,
                dataset,
                budget,
                seeds,
                device,
                aligned=aligned,
                parties=parties,
                pool=pool,
                labels=labels,
                watch=watch,
            )
        except KeyboardInterrupt:
            bars.note(f"stopped after {len(seen)} of {total} trials; nothing was written")
            raise
    whole = found.as_json()
    if out is not None:
        records.append(out, whole)
    if as_json:
        print(json.dumps(records.finite(whole)))
    else:
        print(f"best of {len(seen)}: {_told(1 + seen.index(found.best), found.best)}")
        print(json.dumps(_preset_entry(dataset, found.best.overrides)))


def _told(number: int, trial: "Trial") -> str:
    settings = (
        " ".join(f"{name}={value}" for name, value in trial.overrides.items())
        or "the preset as it is"
    )
    return (
        f"trial {number}: score {percent(trial.score)} % on held-out aligned rows, "
        f"{trial.seconds:.0f} s, {settings}"
    )


def _preset_entry(dataset: str, overrides: Any) -> dict[str, Any]:
    """What goes into presets/METHOD.json under a preset's name."""
    return {dataset: dict(overrides)}
