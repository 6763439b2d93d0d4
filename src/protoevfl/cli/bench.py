"""`protoevfl bench`: methods on a data set, several seeds, one JSON line a finished run."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from protoevfl.bench import records
from protoevfl.cli import tables as cli_tables
from protoevfl.cli.option_values import (
    ALIGNED,
    DEVICE,
    PARTIES,
    POOL,
    check_choice,
    check_device,
    settings_for,
    whole_numbers,
)
from protoevfl.errors import UserError
from protoevfl.progress import OUTPUT, Bars, is_secondary_rank, note, size

if TYPE_CHECKING:
    from protoevfl.bench.world import RunConfig
    from protoevfl.observer import Observer

LOG = logging.getLogger(__name__)
ENGINES = ("auto", "loop", "stacked")
OPEN = ("proto_evfl",)  # methods that can answer "none of these classes"
SIDE = (
    "What names two or more unseen classes (zero_shot, proto_evfl; else without effect): one "
    "example of each, or a CSV file with a line for every class: its number, then attributes."
)


def bench(
    dataset: Annotated[
        str, Option(help="fashion_mnist, modelnet10, adult, credit, digits or digits_table.")
    ] = "digits",
    methods: Annotated[str, Option(help="Names, separated by commas.")] = "proto_evfl",
    aligned: ALIGNED = 200,
    setting: Annotated[str, Option(help="normal, few_shot or zero_shot.")] = "normal",
    classes: Annotated[str, Option(help="The rare or unseen classes: 3 or 0,3.")] = "",
    open_: Annotated[
        bool, Option("--open", help="Nobody is told whether a class has no label, nor which.")
    ] = False,
    side: Annotated[str, Option(metavar="example|FILE.csv", help=SIDE)] = "",
    shots: Annotated[int, Option(help="Aligned rows of each rare class (few_shot).")] = 5,
    seeds: Annotated[str, Option(help="0-4 or 0,2,7.")] = "0-4",
    parties: PARTIES = 4,
    pool: POOL = None,
    profile: Annotated[
        str, Option(help="Class imbalance of the pools: majority, exponential or balanced.")
    ] = "majority",
    labels: Annotated[
        str,
        Option(help="shared: labels of shared rows only; all: of all rows of the active party."),
    ] = "shared",
    overlap: Annotated[
        int, Option(help="Further rows it shares with each single other party (--labels all).")
    ] = 0,
    preset: Annotated[str, Option(help="Named settings of the methods.")] = "default",
    set_: Annotated[
        list[str] | None, Option("--set", help="head.epochs=50, or vanilla:epochs=30 for one.")
    ] = None,
    device: DEVICE = "auto",
    engine: Annotated[str, Option(help=", ".join(ENGINES))] = "auto",
    lockstep: Annotated[
        int | None, Option(help="Seeds trained at once; default: all on a GPU, one on a CPU.")
    ] = None,
    subsets: Annotated[
        bool, Option("--subsets", help="Also the accuracy of every subset of parties.")
    ] = False,
    out: Annotated[
        str, Option(help="Records file; runs that are in it are not run again.")
    ] = "records.jsonl",
    as_json: Annotated[bool, Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run methods on a data set for several seeds; one JSON line per run.

    Runs that are in the records file already are not run again; Ctrl-C loses nothing that is
    finished.
    """
    OUTPUT.json = as_json
    names = [name.strip() for name in methods.split(",") if name.strip()]
    overrides = settings_for(names, set_ or [])
    numbers = whole_numbers(seeds, "--seeds")
    check_device(device)
    check_choice(engine, ENGINES, "--engine")
    if open_ and (others := [name for name in names if name not in OPEN]):
        raise UserError(
            f"--open: {others[0]} cannot say 'none of these classes'; only {', '.join(OPEN)} can"
        )
    if open_ and side:
        raise UserError(
            "--side names unseen classes, --open says that nobody knows of them; give one of the "
            "two"
        )
    records.check_writable(out)
    done = records.read(out)

    from protoevfl.bench.world import RunConfig

    cells = [
        RunConfig(
            dataset=dataset,
            method=name,
            preset=preset,
            aligned=aligned,
            setting=setting,
            classes=tuple(whole_numbers(classes, "--classes")),
            shots=shots,
            parties=parties,
            pool=pool,
            profile=profile,
            open=open_,
            side=side,
            labels=labels,
            overlap=overlap,
            overrides=overrides[name],
        )
        for name in names
    ]
    split = _check_cells(cells, numbers)
    how = _how_to_run(device, engine, lockstep, numbers)
    note(split)
    note(
        f"engine {how['engine']} on {how['device']}, {how['lockstep']} seed(s) at once: "
        f"{how.pop('why')}"
    )
    left = records.missing(cells, numbers, done)
    total = len(cells) * len(numbers)
    waiting = sum(len(seeds_left) for _, seeds_left in left)
    if waiting < total:
        note(f"{total - waiting} of {total} runs are in {out} already and are not run again")
        _note_old_subsets(subsets, cells, numbers, done)
    failed = _fill(out, left, how, subsets)
    _finish(out, cells, numbers, how, as_json)
    if failed:
        raise UserError(
            f"{len(failed)} run(s) failed, the others are in {out}; the first: {failed[0]}"
        )


def _check_cells(cells: "Sequence[RunConfig]", seeds: Sequence[int]) -> str:
    """Refuses what cannot run before anything is run or written: method, settings, data set, every
    split.

    Returns the summary of the first seed's split.
    """
    from protoevfl.rows import sources
    from protoevfl.rows.attributes import read_attributes
    from protoevfl.rows.dataset import party_views
    from protoevfl.rows.splits import split_dataset
    from protoevfl.settings.presets import build

    for config in cells:
        build(config.method, config.preset, config.dataset, config.overrides)
    dataset = sources.load(cells[0].dataset)
    party_views(dataset, cells[0].parties)
    if cells[0].side not in ("", "example"):
        read_attributes(cells[0].side, [str(z) for z in range(dataset.classes)])
    splits = [split_dataset(dataset, cells[0].split_spec(), seed) for seed in seeds]
    return splits[0].summary()


def _how_to_run(
    device: str, engine: str, lockstep: int | None, seeds: Sequence[int]
) -> dict[str, Any]:
    """Device, engine, seeds at once, and why this engine."""
    from protoevfl.distributed import choose_device
    from protoevfl.federation.federation import choose_engine

    where = choose_device(device)
    kind = choose_engine(engine)
    if lockstep is not None and lockstep < 1:
        raise UserError(f"--lockstep is at least 1, not {lockstep}")
    at_once = lockstep or (len(seeds) if where == "cuda" else 1)
    why = "as asked" if engine != "auto" else "the faster one on this device by our measurements"
    return {"device": where, "engine": kind, "lockstep": at_once, "why": why}


def _fill(
    out: str, left: "Sequence[tuple[RunConfig, list[int]]]", how: Mapping[str, Any], subsets: bool
) -> list[str]:
    """Runs what is missing; returns what failed. A run that fails stops neither the others nor
    loses them."""
    from protoevfl.bench.run import run

    step = how["lockstep"]
    jobs = [
        (config, seeds[i : i + step]) for config, seeds in left for i in range(0, len(seeds), step)
    ]
    total = sum(len(seeds) for _, seeds in jobs)
    done = 0
    failed: list[str] = []
    with Bars() as bars:
        bars.show("runs", 0, total, "all runs")
        for config, seeds in jobs:
            title = f"{config.method}, seed {', '.join(map(str, seeds))}"
            observer = observer_of(bars, title)
            bars.show("run", 0, 0, title)
            try:
                new = run(
                    config,
                    seeds,
                    device=how["device"],
                    engine=how["engine"],
                    subsets=subsets,
                    observer=observer,
                )
                if not is_secondary_rank():
                    records.append(out, *({**record, **records.stamp()} for record in new))
                lines = [_run_line(record) for record in new]
            except UserError as error:
                lines = [f"{title}: {error}"]
                failed += lines
            except KeyboardInterrupt:
                bars.note(
                    f"stopped: {done} of {total} runs were added to {out}; the same command goes "
                    "on from there"
                )
                raise
            done += len(seeds)
            for line in lines:
                observer.finished(line, done, total)
    return failed


def observer_of(bars: Bars, title: str) -> "Observer":
    """Moves the bar of the run and logs every report."""
    from protoevfl.observer import Logged, Terminal, Together

    return Together([Terminal(bars, title), Logged(LOG, title, logging.DEBUG)])


def _run_line(record: Mapping[str, Any]) -> str:
    """A finished run in one line, with the time of its longest phase and of each that took a while."""
    longest = max(record["phases"].values())
    phases = ", ".join(
        f"{name} {seconds:.1f} s"
        for name, seconds in record["phases"].items()
        if seconds >= min(0.05, longest)
    )
    lockstep = f" for {n} seeds at once" if (n := record["lockstep_seeds"]) > 1 else ""
    return (
        f"{record['method']} seed {record['seed']}: accuracy "
        f"{cli_tables.percent(record['metrics']['accuracy'])} %, "
        f"{size(cli_tables.both_ways(record))} in {record['rounds']} rounds, "
        f"{phases}{lockstep}, peak {record['peak_memory_mb']:.0f} MB"
    )


def _finish(
    out: str,
    cells: "Sequence[RunConfig]",
    seeds: Sequence[int],
    how: Mapping[str, Any],
    as_json: bool,
) -> None:
    """The summary over the seeds, of what is in the file."""
    recorded = records.read(out)
    by_method = {config.method: records.of_cell(recorded, config, seeds) for config in cells}
    groups = {name: runs for name, runs in by_method.items() if runs}
    if as_json:
        summaries = {name: cli_tables.summary(runs) for name, runs in groups.items()}
        print(json.dumps({"out": out, **how, "methods": summaries}))
        return
    if groups:
        config = cells[0]
        parts = [
            config.dataset,
            f"{config.aligned} aligned rows",
            f"{config.parties} parties",
            config.setting + (f" {list(config.classes)}" if config.classes else ""),
            "open" if config.open else "",
            "all labels of the active party" if config.labels == "all" else "",
            f"{config.overlap} further rows shared with each other party" if config.overlap else "",
            f"side information: {Path(config.side).name}" if config.side else "",
        ]
        title = ", ".join(filter(None, parts))
        cli_tables.show(
            f"{title}; mean ± std of {len(seeds)} seed(s)",
            "method",
            groups,
            cli_tables.columns_for(groups.values()),
        )
    note(f"records: {out}")


def _note_old_subsets(
    subsets: bool,
    cells: "Sequence[RunConfig]",
    seeds: Sequence[int],
    done: Sequence[records.Record],
) -> None:
    old = [
        r
        for config in cells
        for r in records.of_cell(done, config, seeds)
        if "subsets" not in r["metrics"]
    ]
    if subsets and old:
        note(f"{len(old)} of them have no subsets; give another --out to measure these")
