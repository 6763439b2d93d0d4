"""Tables from measured cells: Markdown (mean +- std, seeds, the paper's number, the difference) and CSV.

| method | 200 | 600 |
|---|---|---|
| proto_evfl | 86.7 ± 0.5 (5); paper 81.6, +5.1 | ...
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from protoevfl.report.html import number
from protoevfl.reproduction.measure import Measured, Sample
from protoevfl.reproduction.spec import Experiment, Quantity

CSV_NUMBERS = ("mean", "std", "seeds", "paper", "paper_std", "difference")
Place = tuple[str, ...]  # values of the tags that name a row or a column
QUICK_WARNING = "**Quick run: few rows and moments of training. It shows that everything works, it measures nothing.**"


@dataclass(frozen=True)
class Grid:
    """A table before it becomes text: texts[row][column]."""

    title: str
    head: tuple[str, ...]  # names of the row tags, then the columns
    texts: tuple[tuple[str, ...], ...]


def cell_text(sample: Sample, quantity: Quantity) -> str:
    """ours ± std (n); paper p, difference."""
    text = number(sample.mean, quantity.digits)
    if sample.mean is not None:
        spread = f" ± {sample.std:,.{quantity.digits}f}" if sample.std is not None else ""
        text += f"{spread} ({sample.n})"
    if sample.printed is not None:
        text += f"; paper {number(sample.printed, quantity.digits)}"
        if sample.difference is not None:
            text += f", {sample.difference:+,.{quantity.digits}f}"
    return text


def grids(experiment: Experiment, measured: Sequence[Measured]) -> list[Grid]:
    """One grid a quantity that has numbers; without column tags the quantities are the columns of one grid."""
    if not measured:
        return []
    if not experiment.columns:
        return [_by_quantity(experiment, measured)]
    first, *others = experiment.quantities
    wanted = [first, *(q for q in others if any(item.samples[q.name].n for item in measured))]
    return [_by_columns(experiment, measured, q) for q in wanted]


def pivot(
    experiment: Experiment, measured: Sequence[Measured]
) -> tuple[list[Place], dict[Place, list[Measured | None]]]:
    """Columns, and the cells of each row in their order, None where there is no such cell.

    Both stand in the order of the cells; rows with the same first tag together, numbers (lengths of a run) in theirs.
    """
    at = {(_place(item, experiment.rows), _place(item, experiment.columns)): item for item in measured}
    rows, columns = (list(dict.fromkeys(places)) for places in zip(*at, strict=True))
    first = list(dict.fromkeys(row[:1] for row in rows))
    rows.sort(key=lambda row: first.index(row[:1]))
    if all(len(column) == 1 and column[0].isdecimal() for column in columns):
        columns.sort(key=lambda column: int(column[0]))
    return columns, {row: [at.get((row, column)) for column in columns] for row in rows}


def _place(item: Measured, names: Sequence[str]) -> Place:
    return tuple(item.tags.get(name, "") for name in names)


def _by_columns(experiment: Experiment, measured: Sequence[Measured], quantity: Quantity) -> Grid:
    columns, rows = pivot(experiment, measured)
    texts = tuple(
        (*row, *("" if item is None else cell_text(item.samples[quantity.name], quantity) for item in cells))
        for row, cells in rows.items()
    )
    return Grid(label(quantity), (*experiment.rows, *(" ".join(column) for column in columns)), texts)


def _by_quantity(experiment: Experiment, measured: Sequence[Measured]) -> Grid:
    texts = tuple(
        (
            *(item.tags.get(name, "") for name in experiment.rows),
            *(cell_text(item.samples[q.name], q) for q in experiment.quantities),
        )
        for item in measured
    )
    return Grid(experiment.title, (*experiment.rows, *map(label, experiment.quantities)), texts)


def label(quantity: Quantity) -> str:
    return f"{quantity.name} ({quantity.unit})" if quantity.unit else quantity.name


def markdown(experiment: Experiment, measured: Sequence[Measured], quick: bool = False) -> str:
    """The experiment's page."""
    parts = [f"## {experiment.title}", f"{experiment.place}. `protoevfl reproduce {experiment.name}`"]
    if quick:
        parts.append(QUICK_WARNING)
    for grid in grids(experiment, measured):
        parts += [f"### {grid.title}", markdown_table(grid)]
    return "\n\n".join([*parts, experiment.note]).rstrip() + "\n"


def markdown_table(grid: Grid) -> str:
    lines = ["| " + " | ".join(grid.head) + " |", "|" + "---|" * len(grid.head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in grid.texts])


def tidy(experiment: Experiment, measured: Sequence[Measured]) -> tuple[list[str], list[list[str]]]:
    """Header and lines with one line a cell and quantity that has a number of ours or of the paper's."""
    names = (*experiment.rows, *experiment.columns)
    lines = []
    for item in measured:
        for q in experiment.quantities:
            s = item.samples[q.name]
            if s.n or s.printed is not None:
                figures = (s.mean, s.std, s.n, s.printed, s.printed_std, s.difference)
                texts = ["" if f is None else f"{f:.6g}" for f in figures]
                lines.append([*(item.tags.get(n, "") for n in names), label(q), *texts])
    return [*names, "quantity", *CSV_NUMBERS], lines


def comma_separated(experiment: Experiment, measured: Sequence[Measured]) -> str:
    """The tidy lines as CSV."""
    head, lines = tidy(experiment, measured)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([head, *lines])
    return out.getvalue()
