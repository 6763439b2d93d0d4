"""The tables of the page: all results, the paper's tables, claims, splits, bytes by message type;
every setting."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from protoevfl.report.html import Entry, Table, figure_text, number, text
from protoevfl.reproduction import claims, tables
from protoevfl.reproduction.measure import Measured, Sample, Store
from protoevfl.reproduction.pages.averages import Pairs, mean, spread
from protoevfl.reproduction.pages.curves import by_type
from protoevfl.reproduction.spec import Cell, Experiment, Quantity, dig

RATES = (
    ("balanced %", "metrics.balanced_accuracy"),
    ("macro F1 %", "metrics.macro_f1"),
    ("AUC %", "metrics.auc"),
    ("unseen recall %", "metrics.unseen_recall"),
    ("H %", "metrics.harmonic_mean"),
    ("rare recall %", "metrics.rare_recall"),
)
COSTS = (
    ("MB up", "bytes.up", 1e-6),
    ("MB down", "bytes.down", 1e-6),
    ("exchanges", "rounds", 1),
    ("seconds", "seconds", 1),
)
NAMES = ("data", "method", "aligned", "setting", "classes", "parties", "changed settings")
PROVENANCE = (
    "settings",
    "privacy",
    "engine",
    "device",
    "machine",
    "commit",
    "versions",
    "split_hash",
)


def _cell_name(cell: Cell) -> list[Entry]:
    c = cell.config
    changed = ", ".join(f"{name} {value}" for name, value in c.overrides.items())
    classes = " ".join(map(str, c.classes))
    return [
        *map(text, (c.dataset, cell.tags["method"], c.aligned, c.setting, classes, c.parties)),
        text(changed, True),
    ]


def results(pairs: Pairs) -> Table:
    """All configurations, one line each."""
    rows = []
    for cell, records in pairs:
        if not any(record.get("metrics") for record in records):
            continue
        deviation = 100 * spread(records, "metrics.accuracy") if len(records) > 1 else None
        rows.append(
            [
                *_cell_name(cell),
                text(len(records)),
                _mean(records, "metrics.accuracy", 100),
                figure_text(deviation),
                *(_mean(records, path, 100) for _, path in RATES),
                *(_mean(records, path, scale, 2 if scale < 1 else 1) for _, path, scale in COSTS),
            ]
        )
    rates = ("accuracy %", "± std", *(name for name, _ in RATES))
    return Table("results", (*NAMES, "seeds", *rates, *(name for name, *_ in COSTS)), rows)


def _mean(records: Sequence[Mapping[str, Any]], path: str, scale: float, digits: int = 1) -> Entry:
    value = mean(records, path)
    return figure_text(None if value is None else scale * float(value), digits)


def experiment(item: Experiment, measured: Sequence[Measured]) -> list[Table]:
    """The table of an experiment's first quantity beside the paper's numbers, then those of its
    further quantities; without column tags one table of all."""
    shown = [m for m in measured if any(s.n for s in m.samples.values())]
    quantities = [q for q in item.quantities if any(m.samples[q.name].n for m in shown)]
    if item.columns:
        return [_by_columns(item, shown, q) for q in quantities]
    rows = [
        [
            *(text(m.tags.get(n, "")) for n in item.rows),
            *(_sample_text(m.samples[q.name], q) for q in quantities),
        ]
        for m in shown
    ]
    return [Table(item.name + "-table", (*item.rows, *map(tables.label, quantities)), rows)]


def _by_columns(item: Experiment, measured: Sequence[Measured], quantity: Quantity) -> Table:
    columns, cells = tables.pivot(item, measured)
    rows = [
        [
            *map(text, row),
            *(
                Entry("") if m is None else _sample_text(m.samples[quantity.name], quantity)
                for m in own
            ),
        ]
        for row, own in cells.items()
    ]
    slug = f"{item.name}-{quantity.name.replace(' ', '-')}"
    return Table(slug, (*item.rows, *(" ".join(c) for c in columns)), rows, tables.label(quantity))


def verdicts(store: Store, quick: bool) -> Table | None:
    """The paper's claims; None when no claim can be judged."""
    judged = [] if quick else claims.verdicts(store)
    if all(verdict in (claims.MISSING, claims.UNTESTABLE) for _, verdict, _ in judged):
        return None
    rows = [
        [text(c.text, True), text(verdict), text(measured, True)]
        for c, verdict, measured in judged
        if measured
    ]
    return Table("claims-table", ("claim", "verdict", "measured"), rows)


def splits(pairs: Pairs) -> Table:
    """Imbalance of each party's pool, one line per party and kind of split (first seed)."""
    rows, seen = [], set()
    for cell, records in pairs:
        split = dig(records[0], "split") if records else None
        name = (cell.config.dataset, cell.config.parties, cell.config.pool, cell.config.profile)
        if not isinstance(split, Mapping) or not split.get("pool_counts") or name in seen:
            continue
        seen.add(name)
        for m, counts in enumerate(split["pool_counts"]):
            measures = [dig(split, f"{key}.{m}") for key in ("gamma", "mid", "wcs")]
            rows.append(
                [
                    text(cell.config.dataset),
                    text(cell.config.parties),
                    text(m + 1),
                    figure_text(sum(counts), 0),
                    *(figure_text(v, d) for v, d in zip(measures, (1, 3, 3), strict=True)),
                    text(", ".join(f"{int(count):,}" for count in counts), True),
                ]
            )
    return Table(
        "splits",
        ("data", "parties", "party", "pool rows", "Gamma", "MID", "WCS", "rows of each class"),
        rows,
    )


def messages(pairs: Pairs) -> Table:
    rows = [
        [*_cell_name(cell), text(kind), figure_text(up, 0), figure_text(down, 0)]
        for cell, records in pairs
        for kind, (up, down) in by_type(records).items()
    ]
    return Table("messages", (*NAMES, "message", "bytes up", "bytes down"), rows)


def settings(pairs: Pairs) -> list[tuple[str, str]]:
    """Each configuration's name and everything that was set in it, as JSON."""
    parts = []
    for cell, records in pairs:
        kept = {**cell.config.identity(), "seeds": [r.get("seed") for r in records]}
        kept |= {name: records[0].get(name) for name in PROVENANCE}
        name = " ".join(entry.shown for entry in _cell_name(cell) if entry.shown)
        parts.append(
            (
                name,
                json.dumps({k: v for k, v in kept.items() if v is not None}, indent=1, default=str),
            )
        )
    return parts


def _sample_text(sample: Sample, quantity: Quantity) -> Entry:
    """Ours ± std (n), the paper's number, the difference."""
    shown = number(sample.mean, quantity.digits)
    if sample.std is not None:
        shown += f" ± {number(sample.std, quantity.digits)}"
    if sample.n:
        shown += f" ({sample.n})"
    return Entry(
        shown,
        "" if sample.mean is None else repr(sample.mean),
        paper="" if sample.printed is None else number(sample.printed, quantity.digits),
        change="" if sample.difference is None else f"{sample.difference:+,.{quantity.digits}f}",
    )
