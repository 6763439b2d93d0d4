"""Tables of the command line: records to rows of text, mean and spread over seeds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protoevfl.progress import size

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A number of a record and how it is written."""

    title: str
    value: Callable[[Record], float | None]
    write: Callable[[float], str]


def _metric(name: str) -> Callable[[Record], float | None]:
    return lambda record: record["metrics"].get(name)


def percent(value: float) -> str:
    """
    >>> percent(0.8571)
    '85.7'
    """
    return f"{100 * value:.1f}"


def both_ways(record: Record) -> float:
    return float(record["bytes"]["up"] + record["bytes"]["down"])


def _matched(record: Record) -> float | None:
    """Recall of the unseen classes up to their names; where there are two or more, it differs from
    the strict one."""
    several = len(record.get("classes", ())) > 1
    value: float | None = record["metrics"].get("matched_unseen") if several else None
    return value


COLUMNS = (
    Column("accuracy %", _metric("accuracy"), percent),
    Column("balanced %", _metric("balanced_accuracy"), percent),
    Column("AUC %", _metric("auc"), percent),
    Column("seen %", _metric("seen_accuracy"), percent),
    Column("unseen %", _metric("unseen_recall"), percent),
    Column("matched %", _matched, percent),
    Column("H %", _metric("harmonic_mean"), percent),
    Column("rare %", _metric("rare_recall"), percent),
    Column("bytes", both_ways, size),
    Column("rounds", lambda record: record["rounds"], "{:.0f}".format),
    Column("seconds", lambda record: record["seconds"], "{:.1f}".format),
)


def _cell(column: Column, records: Iterable[Record]) -> str:
    """`mean +- std` over the records that have the number, or a dash."""
    values = [v for v in map(column.value, records) if v is not None]
    if not values:
        return "-"
    from protoevfl.bench.records import mean_std

    mean, std = mean_std(values)
    if std is None or column.title in ("bytes", "rounds", "seconds"):
        return column.write(mean)
    return f"{column.write(mean)} ± {column.write(std)}"


def columns_for(
    groups: Iterable[Sequence[Record]], titles: Sequence[str] | None = None
) -> list[Column]:
    """The columns (of those asked for) that at least one record can fill."""
    records = [record for group in groups for record in group]
    chosen = [c for c in COLUMNS if titles is None or c.title in titles]
    if not any(record["metrics"].get("unseen_recall") is not None for record in records):
        chosen = [c for c in chosen if c.title not in ("seen %", "unseen %", "matched %", "H %")]
    return [c for c in chosen if any(c.value(record) is not None for record in records)]


def show(
    title: str, head: str, groups: Mapping[str, Sequence[Record]], columns: Sequence[Column]
) -> None:
    """Prints one row per group on stdout."""
    rows = [
        [name, *(_cell(column, records) for column in columns)] for name, records in groups.items()
    ]
    print_table([head, *(column.title for column in columns)], rows, title, text_columns=1)


def print_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str | None = None,
    text_columns: int = 9,
) -> None:
    """A table on stdout, as wide as it needs to be; columns after the first `text_columns` are
    numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, title=title and Text(title), title_justify="left", title_style="bold"
    )
    for number, name in enumerate(head):
        table.add_column(name, no_wrap=True, justify="left" if number < text_columns else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    wide = Console(width=1000)
    Console(highlight=False, width=wide.measure(table).maximum).print(table)


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """The same numbers for machines: {"seeds": [...], "accuracy": {"mean", "std"}, ...}, rates as
    fractions."""
    from protoevfl.bench.records import mean_std

    names = (
        "accuracy",
        "balanced_accuracy",
        "macro_f1",
        "auc",
        "seen_accuracy",
        "unseen_recall",
        "harmonic_mean",
        "matched_unseen",
        "rare_recall",
    )
    values = {
        name: [v for r in records if (v := r["metrics"].get(name)) is not None] for name in names
    }
    values |= {"bytes": [both_ways(r) for r in records], "rounds": [r["rounds"] for r in records]}
    values |= {"seconds": [r["seconds"] for r in records]}
    known = {
        name: dict(zip(("mean", "std"), mean_std(numbers)))
        for name, numbers in values.items()
        if numbers
    }
    return {"seeds": [r["seed"] for r in records], **known}
