"""`protoevfl reproduce`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from protoevfl.cli.option_values import whole_numbers
from protoevfl.errors import UserError
from protoevfl.progress import Bars, bar, note

DEFAULT_OUT, QUICK_OUT = Path("out/reproduce"), Path("out/reproduce-quick")


def reproduce(
    name: Annotated[
        str, typer.Argument(help="An experiment, several with commas, `all`, or `list`.")
    ],
    quick: Annotated[
        bool, typer.Option(help="Two seeds, few rows, moments of training: does everything run?")
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(help="For example 0-4 or 0,3,7. Default 0-4, with --quick 0-1.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, stacked or loop.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder for records, tables, figures and the page.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Seconds; nothing is started that would not fit.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; they can share one GPU.")] = 1,
    shard: Annotated[
        str, typer.Option(help="k/n: every n-th job from the k-th, to spread over machines.")
    ] = "1/1",
    merge: Annotated[
        list[Path] | None, typer.Option(help="Add the records of this file first; repeat it.")
    ] = None,
    render: Annotated[
        bool, typer.Option(help="Write tables, figures and the page at the end.")
    ] = True,
    run: Annotated[bool, typer.Option(help="Run what is missing; --no-run only renders.")] = True,
    fill: Annotated[
        Path | None, typer.Option(help="A Markdown page to fill, and those in its folder.")
    ] = None,
) -> None:
    """Rebuild the paper's tables and figures, ours beside theirs. What is recorded is not run
    again."""
    from protoevfl.reproduction.catalogue import EXPERIMENTS, select

    if name == "list":
        for item in EXPERIMENTS.values():
            print(f"{item.name:<24}{len(item.cells):>5} cells  {item.title}. {item.place}")
        return
    chosen = select(name)
    folder = out or (QUICK_OUT if quick else DEFAULT_OUT)
    file = _records_file(folder)
    if merge:
        from protoevfl.reproduction.execute import merge as merge_records

        note(f"{merge_records(file, merge)} records added")
    numbers = whole_numbers(seeds or ("0-1" if quick else "0-4"), "--seeds")
    failures = (
        _run(chosen, file, quick, numbers, device, engine, budget, workers, shard) if run else {}
    )
    if render:
        from protoevfl.reproduction.pages.document import render as render_all

        with bar("tables and figures") as step:
            written = render_all(chosen, file, folder, quick=quick, step=step)
        without = (
            ""
            if (folder / "report.html") in written
            else " (report.html needs records and the package Jinja2)"
        )
        note(f"{len(written)} files in {folder}; start with {folder / 'results.md'}{without}")
    if fill:
        from protoevfl.bench import records
        from protoevfl.reproduction.pages.document import Filling, pages_of

        filling = Filling(records.read(file))
        for page in pages_of(fill):
            filling.page(page)
        note(f"{len(filling.written)} files of {fill} written")
    if failures:
        raise typer.Exit(1)


def _run(
    chosen: list[Any],
    file: Path,
    quick: bool,
    seeds: list[int],
    device: str,
    engine: str,
    budget: float | None,
    workers: int,
    shard: str,
) -> dict[str, str]:
    from protoevfl.bench import records
    from protoevfl.observer import Terminal
    from protoevfl.reproduction.execute import execute, plan

    jobs = plan(chosen, seeds, records.read(file), quick=quick, shard=_shard(shard))
    if quick:
        import torch

        jobs = _at_hand(jobs)
        torch.set_num_threads(1)  # batches this small are slower on two threads than on one
    note(f"{len(jobs)} cells to run; records in {file}")
    with Bars() as bars:
        bars.show("runs", 0, len(jobs), "all runs")
        outcome = execute(
            jobs,
            file,
            device=device,
            engine=engine,
            budget=budget,
            workers=workers,
            observer=Terminal(bars),
        )
    if outcome.left_out:
        note(f"budget spent: {outcome.left_out} cells left; the same command goes on from here")
    _write_failures(file.parent / "failures.txt", outcome.failures)
    return outcome.failures


def _write_failures(path: Path, failures: dict[str, str]) -> None:
    path.unlink(missing_ok=True)
    if failures:
        path.write_text(
            "".join(f"{name}: {why}\n" for name, why in failures.items()), encoding="utf-8"
        )
        note(
            f"{len(failures)} cells failed, see {path}; the first: {next(iter(failures.values()))}"
        )


def _at_hand(jobs: list[Any]) -> list[Any]:
    """Quick runs download nothing: data sets that are not on this machine are left out, with a
    word."""
    from protoevfl.rows import sources

    away = {job.config.dataset for job in jobs if not sources.available(job.config.dataset)}
    for name in sorted(away):
        note(f"{name} is not on this machine: its quick cells are left out")
    return [job for job in jobs if job.config.dataset not in away]


def _records_file(folder: Path) -> Path:
    from protoevfl.bench import records

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    records.check_writable(folder / "records.jsonl")
    return folder / "records.jsonl"


def _shard(text: str) -> tuple[int, int]:
    """(k, n) of "k/n".

    >>> _shard("2/3")
    (2, 3)
    """
    k, _, n = text.partition("/")
    if not (k.isdigit() and n.isdigit() and 1 <= int(k) <= int(n)):
        raise UserError(f"--shard {text}: give k/n with k from 1 to n, for example 1/2")
    return int(k), int(n)
