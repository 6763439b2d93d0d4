"""What an experiment is: cells (a configuration with the tags that place it), quantities, rows and
columns.

A cell's tags are the coordinates of its number in our table and in the paper's; the configuration
is what is run. Two cells with the same configuration share their records, within an experiment and
across experiments.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from protoevfl.bench.world import RunConfig

Record = Mapping[str, Any]
Tags = Mapping[str, str]
Value = Callable[[Record, Tags], float | None]
Runner = Callable[..., list[dict[str, Any]]]  # (config, seeds, *, device, engine) -> records

RUN = "protoevfl.bench.run:run"


@dataclass(frozen=True)
class Quantity:
    """One number a record gives to its cell, and which column of the paper's file stands beside
    it."""

    name: str
    value: Value
    unit: str = ""
    digits: int = 1
    printed: str | None = None
    printed_scale: float = 1.0


@dataclass(frozen=True)
class Cell:
    """A configuration, where its numbers stand, and how early it is run (0 first)."""

    tags: Tags
    config: RunConfig
    priority: int = 5

    def tagged(self, **tags: str) -> "Cell":
        """The same run in another place."""
        return replace(self, tags={**self.tags, **tags})


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper."""

    name: str
    title: str
    place: str  # where the paper has it
    cells: tuple[Cell, ...]
    rows: tuple[str, ...]  # tags that name a row
    columns: tuple[str, ...]  # tags that name a column
    quantities: tuple[Quantity, ...]  # the first is the table's number; the others follow
    quick: tuple[Cell, ...] = ()
    source: str | None = None  # the paper's file
    runner: str = RUN  # "module:function"
    # tags of curves: the shortest cell within a point of its curve's best stands for it
    reach: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()  # tags averaged away
    # last row tag of the cell the others of its rows are compared with, seed by seed
    against: str = ""
    figures: tuple[str, ...] = ("overview",)  # names in pages/figures.py; the first leads
    note: str = ""

    def chosen(self, quick: bool) -> tuple[Cell, ...]:
        return self.quick if quick else self.cells


def dig(record: Record, path: str) -> Any:
    """A nested value of a record by its dotted path, None where something is missing.

    >>> dig({"metrics": {"accuracy": 0.5}}, "metrics.accuracy"), dig({}, "metrics.accuracy")
    (0.5, None)
    """
    value: Any = record
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and part.isdigit()
            and int(part) < len(value)
        ):
            value = value[int(part)]
        else:
            return None
    return value


@dataclass(frozen=True)
class Field:
    """A value function: scale times the number at a path; several paths are added up."""

    paths: tuple[str, ...] = field(default=())
    scale: float = 1.0

    def __call__(self, record: Record, tags: Tags) -> float | None:
        values = [dig(record, path.format(**tags)) for path in self.paths]
        if any(not isinstance(value, int | float) for value in values):
            return None
        return self.scale * float(sum(values))


def rate(path: str) -> Field:
    """A rate between 0 and 1 anywhere in the record, in percent."""
    return Field((path,), 100.0)


def percent(name: str) -> Field:
    """A rate of the metrics, in percent."""
    return rate(f"metrics.{name}")


ACCURACY = Quantity("accuracy", percent("accuracy"), "%", printed="accuracy")
BALANCED = Quantity("balanced accuracy", percent("balanced_accuracy"), "%")
AUC = Quantity("AUC", percent("auc"), "%")
UNSEEN = Quantity("unseen recall", percent("unseen_recall"), "%")
HARMONIC = Quantity("harmonic mean", percent("harmonic_mean"), "%")
RARE = Quantity("rare recall", percent("rare_recall"), "%")
MEGABYTES = Quantity("megabytes", Field(("bytes.up", "bytes.down"), 1e-6), "MB", digits=2)
EXCHANGES = Quantity("exchanges", Field(("rounds",)), "", digits=1)
# filled in by `measure`
DIFFERENCE = Quantity("paired difference", lambda record, tags: None, "points", digits=2)
SECONDS = Quantity("seconds", Field(("seconds",)), "s", digits=1)
