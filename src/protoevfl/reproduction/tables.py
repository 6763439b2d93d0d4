"""Tables from measured cells: Markdown (ours, its spread, the paper's number) and CSV (everything).

accuracy (%): ours ± standard deviation over 5 seeds (paper)

| method | 200 | 600 |
|---|---|---|
| proto_evfl | 87.3 ± 2.2 (81.6) | ...
"""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from protoevfl.report.html import number
from protoevfl.reproduction.measure import Measured, Sample
from protoevfl.reproduction.spec import Experiment, Quantity

CSV_NUMBERS = ("mean", "std", "seeds", "paper", "paper_std", "difference")
Place = tuple[str, ...]  # values of the tags that name a row or a column


@dataclass(frozen=True)
class Grid:
    """A table before it becomes text: texts[row][column]."""

    title: str
    head: tuple[str, ...]  # names of the row tags, then the columns
    texts: tuple[tuple[str, ...], ...]


def _cell_text(sample: Sample, quantity: Quantity, usual: int) -> str:
    """ours ± std (paper), with the number of seeds where it is not the table's usual one."""
    if not sample.n:
        return "" if sample.printed is None else f"({number(sample.printed, quantity.digits)})"
    text = number(sample.mean, quantity.digits)
    if sample.std is not None:
        text += f" ± {number(sample.std, quantity.digits)}"
    if sample.n != usual:
        text += f", {sample.n} seed{'s' * (sample.n > 1)}"
    return text if sample.printed is None else f"{text} ({number(sample.printed, quantity.digits)})"


def grids(experiment: Experiment, measured: Sequence[Measured]) -> list[Grid]:
    """One grid per quantity that has numbers; without column tags the quantities are the columns of
    one grid."""
    first, *others = experiment.quantities
    kept = [first, *(q for q in others if any(item.samples[q.name].n for item in measured))]
    if experiment.columns:
        return [_by_columns(experiment, measured, q) for q in kept] if measured else []
    usual, title = _title(experiment, measured, kept)
    rows = [
        (
            *_place(item, experiment.rows),
            *(_cell_text(item.samples[q.name], q, usual) for q in kept),
        )
        for item in measured
    ]
    return [Grid(title, (*experiment.rows, *map(label, kept)), tuple(rows))] if measured else []


def _title(
    experiment: Experiment, measured: Sequence[Measured], quantities: Sequence[Quantity]
) -> tuple[int, str]:
    """The usual number of values (one per seed, or per cell averaged over), and what an entry of
    the table is."""
    samples = [item.samples[q.name] for item in measured for q in quantities]
    (usual, _), *_ = Counter(sample.n for sample in samples if sample.n).most_common(1) or [(0, 0)]
    values = f"values of {', '.join(experiment.pool)}" if experiment.pool else "seeds"
    title = f"ours ± standard deviation over {usual} {values}" if usual > 1 else "ours"
    paper = any(sample.printed is not None for sample in samples)
    return usual, title + " (paper)" * paper


def pivot(
    experiment: Experiment, measured: Sequence[Measured]
) -> tuple[list[Place], dict[Place, list[Measured | None]]]:
    """Columns, and the cells of each row in their order, None where there is no such cell.

    Both stand in the order of the cells; rows with the same first tag together, numbers (lengths of
    a run) in theirs.
    """
    at = {
        (_place(item, experiment.rows), _place(item, experiment.columns)): item for item in measured
    }
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
    usual, title = _title(experiment, measured, [quantity])
    texts = [
        [
            "" if item is None else _cell_text(item.samples[quantity.name], quantity, usual)
            for item in cells
        ]
        for cells in rows.values()
    ]
    kept = [n for n in range(len(columns)) if any(line[n] for line in texts)]
    lines = [
        (*row, *(line[n] for n in kept)) for row, line in zip(rows, texts, strict=True) if any(line)
    ]
    head = (*experiment.rows, *(" ".join(columns[n]) for n in kept))
    return Grid(f"{label(quantity)}: {title}", head, tuple(lines))


def label(quantity: Quantity) -> str:
    return f"{quantity.name} ({quantity.unit})" if quantity.unit else quantity.name


def markdown_table(grid: Grid) -> str:
    lines = ["| " + " | ".join(grid.head) + " |", "|" + "---|" * len(grid.head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in grid.texts])


def comma_separated(experiment: Experiment, measured: Sequence[Measured]) -> str:
    """CSV with one line per cell and quantity that has a number of ours or of the paper's."""
    names = (*experiment.rows, *experiment.columns)
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write([*names, "quantity", *CSV_NUMBERS])
    for item in measured:
        for q in experiment.quantities:
            s = item.samples[q.name]
            if s.n or s.printed is not None:
                numbers = (s.mean, s.std, s.n, s.printed, s.printed_std, s.difference)
                write(
                    [
                        *_place(item, names),
                        label(q),
                        *("" if x is None else f"{x:.6g}" for x in numbers),
                    ]
                )
    return out.getvalue()
