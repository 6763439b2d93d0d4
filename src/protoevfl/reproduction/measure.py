"""From records to the numbers of an experiment's cells: one value per seed, mean and standard
deviation over seeds."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from protoevfl.bench.records import cell_key, mean_std
from protoevfl.reproduction import paper_numbers
from protoevfl.reproduction.spec import (
    ACCURACY,
    DIFFERENCE,
    Cell,
    Experiment,
    Quantity,
    Record,
    Tags,
)

WITHIN = 1.0  # points of accuracy a shorter run may lie below the best of its curve


class Store:
    """Records by cell; of two records of one cell and seed the last counts."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.cells: dict[str, dict[int, Record]] = defaultdict(dict)
        for record in records:
            self.cells[cell_key(record)][int(record.get("seed", 0))] = record

    def of(self, cell: Cell) -> list[Record]:
        by_seed = self.cells.get(cell_key(cell.config.identity()), {})
        return [by_seed[seed] for seed in sorted(by_seed)]


@dataclass(frozen=True)
class Sample:
    """The values of one quantity in one cell, and what the paper prints there."""

    values: tuple[float, ...] = ()
    printed: float | None = None
    printed_std: float | None = None

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float | None:
        return mean_std(self.values)[0] if self.values else None

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds (n - 1); None for one seed."""
        return mean_std(self.values)[1] if self.values else None

    @property
    def difference(self) -> float | None:
        return None if self.mean is None or self.printed is None else self.mean - self.printed


@dataclass(frozen=True)
class Measured:
    """One cell with its samples by quantity name."""

    tags: Tags
    samples: Mapping[str, Sample] = field(default_factory=dict)

    def mean(self, quantity: str = "accuracy") -> float | None:
        return self.samples[quantity].mean if quantity in self.samples else None


def measure(experiment: Experiment, store: Store, quick: bool = False) -> list[Measured]:
    """All cells of an experiment, also those without a record."""
    pairs = [(cell, store.of(cell)) for cell in experiment.chosen(quick)]
    if experiment.reach:
        pairs = _reach(pairs, experiment.reach)
    measured = [
        _measured(experiment, cell.tags, [(r, cell.tags) for r in records])
        for cell, records in pairs
    ]
    if experiment.against:
        measured = _compared(experiment, pairs, measured)
    return _pooled(experiment, measured) if experiment.pool else measured


def _compared(
    experiment: Experiment, pairs: Sequence[tuple[Cell, list[Record]]], measured: Sequence[Measured]
) -> list[Measured]:
    """The cells with the difference of the first quantity to the row `against` of their group, seed
    by seed."""
    value = experiment.quantities[0].value
    places = (*experiment.rows[:-1], *experiment.columns)
    by_seed, base = [], dict[tuple[str, ...], dict[int, float]]()
    for cell, records in pairs:
        numbers = {int(r["seed"]): v for r in records if (v := value(r, cell.tags)) is not None}
        place = tuple(cell.tags.get(name, "") for name in places)
        by_seed.append((place, numbers))
        if cell.tags[experiment.rows[-1]] == experiment.against:
            base[place] = numbers
    with_gaps = []
    for item, (place, numbers) in zip(measured, by_seed, strict=True):
        other = base.get(place, {}) if item.tags[experiment.rows[-1]] != experiment.against else {}
        gaps = tuple(numbers[seed] - other[seed] for seed in sorted(numbers) if seed in other)
        with_gaps.append(Measured(item.tags, {**item.samples, DIFFERENCE.name: Sample(gaps)}))
    return with_gaps


def _reach(
    pairs: Sequence[tuple[Cell, list[Record]]], names: Sequence[str]
) -> list[tuple[Cell, list[Record]]]:
    """Of each curve the shortest run whose mean accuracy lies within a point of the curve's
    best."""
    curves: dict[tuple[str, ...], list[tuple[Cell, list[Record]]]] = defaultdict(list)
    for cell, records in pairs:
        curves[tuple(cell.tags.get(name, "") for name in names)].append((cell, records))
    return [_shortest(points) for points in curves.values()]


def _shortest(points: Sequence[tuple[Cell, list[Record]]]) -> tuple[Cell, list[Record]]:
    scored = []
    for cell, records in points:
        values = [v for v in (ACCURACY.value(r, cell.tags) for r in records) if v is not None]
        if values:
            scored.append(
                (int(cell.tags.get("length", 0)), sum(values) / len(values), cell, records)
            )
    if not scored:
        return points[0][0], []
    best = max(score for _, score, _, _ in scored)
    _, _, cell, records = min((s for s in scored if s[1] >= best - WITHIN), key=lambda s: s[0])
    return cell, records


def _pooled(experiment: Experiment, measured: Sequence[Measured]) -> list[Measured]:
    """Averages the `pool` tags away, over what every row has that has anything: values are the
    means of the cells."""
    places = (*experiment.rows, *experiment.columns)
    groups: dict[tuple[str, ...], list[Measured]] = defaultdict(list)
    columns_of: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for item in measured:
        place = tuple(item.tags.get(name, "") for name in places)
        groups[place].append(item)
        if any(sample.n for sample in item.samples.values()):
            columns_of[place].add(_pool_of(experiment, item))
    common = set.intersection(*columns_of.values()) if columns_of else set()
    merged = []
    for place, items in groups.items():
        tags = dict(zip(places, place, strict=True))
        if items[0].tags.get("quick"):
            tags["quick"] = "yes"
        samples = {}
        for q in experiment.quantities:
            means = [
                m
                for item in items
                if _pool_of(experiment, item) in common and (m := item.mean(q.name)) is not None
            ]
            samples[q.name] = _sample(experiment, q, tags, means)
        merged.append(Measured(tags, samples))
    return merged


def _pool_of(experiment: Experiment, item: Measured) -> tuple[str, ...]:
    return tuple(item.tags.get(name, "") for name in experiment.pool)


def _measured(
    experiment: Experiment, tags: Tags, records: Sequence[tuple[Record, Tags]]
) -> Measured:
    samples = {}
    for q in experiment.quantities:
        values = [v for v in (q.value(record, own) for record, own in records) if v is not None]
        samples[q.name] = _sample(experiment, q, tags, values)
    return Measured(tags, samples)


def _sample(experiment: Experiment, q: Quantity, tags: Tags, values: Sequence[float]) -> Sample:
    number = paper_numbers.find(experiment.source, tags, q.printed)
    spread = (
        paper_numbers.find(experiment.source, tags, "std")
        if q.printed in ("accuracy", "attack_accuracy")
        else None
    )
    return Sample(tuple(values), None if number is None else number * q.printed_scale, spread)
