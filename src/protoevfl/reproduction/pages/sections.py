"""The parts of the page: all results, the paper's tables, splits, bytes by message type, settings."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from protoevfl.report.html import Text, figure_text, number, paragraph, table, text
from protoevfl.reproduction import claims, tables
from protoevfl.reproduction.measure import Measured, Sample, Store
from protoevfl.reproduction.pages.averages import mean, spread
from protoevfl.reproduction.pages.pictures import Picture, svg
from protoevfl.reproduction.pages.traffic import by_type
from protoevfl.reproduction.spec import Cell, Experiment, Quantity, Record, dig

Pairs = Sequence[tuple[Cell, Sequence[Record]]]
RATES = (
    ("accuracy %", "metrics.accuracy"), ("± std", ""), ("balanced %", "metrics.balanced_accuracy"),
    ("macro F1 %", "metrics.macro_f1"), ("AUC %", "metrics.auc"), ("unseen recall %", "metrics.unseen_recall"),
    ("H %", "metrics.harmonic_mean"), ("rare recall %", "metrics.rare_recall"),
)  # fmt: skip
COSTS = (
    ("MB up", "bytes.up", 1e-6),
    ("MB down", "bytes.down", 1e-6),
    ("exchanges", "rounds", 1),
    ("seconds", "seconds", 1),
)


def cell_name(cell: Cell) -> list[Text]:
    c = cell.config
    changed = ", ".join(f"{name} {value}" for name, value in c.overrides.items())
    classes = " ".join(map(str, c.classes))
    return [*map(text, (c.dataset, cell.tags["method"], c.aligned, c.setting, classes, c.parties)), text(changed, True)]


NAMES = ("data", "method", "aligned", "setting", "classes", "parties", "changed settings")


def results(pairs: Pairs) -> str:
    """All configurations, one line each."""
    rows = []
    for cell, records in pairs:
        if not any(record.get("metrics") for record in records):
            continue
        figures = []
        for _, path in RATES:
            if path:
                value = mean(records, path)
                figures.append(figure_text(None if value is None else 100 * float(value)))
            else:
                figures.append(figure_text(100 * spread(records, "metrics.accuracy") if len(records) > 1 else None))
        for _, path, scale in COSTS:
            value = mean(records, path)
            figures.append(figure_text(None if value is None else scale * float(value), 2 if scale < 1 else 1))
        rows.append([*cell_name(cell), text(len(records)), *figures])
    head = (*NAMES, "seeds", *(name for name, _ in RATES), *(name for name, *_ in COSTS))
    return table("results", head, rows, searchable=True)


def experiment(item: Experiment, measured: Sequence[Measured], pictures: Sequence[Picture]) -> str:
    """The tables of an experiment with the paper's numbers, then its figures."""
    parts = [f'<h2 id="{item.name}">{escape(item.title)}</h2>', paragraph(item.place, "soft")]
    shown = [m for m in measured if any(s.n for s in m.samples.values())]
    quantities = [q for q in item.quantities if any(m.samples[q.name].n for m in shown)]
    if item.columns:
        for q in quantities:
            parts += [
                f"<h3>{escape(q.name)}{f' ({escape(q.unit)})' if q.unit else ''}</h3>",
                by_columns(item, shown, q),
            ]
    else:
        rows = [
            [*(text(m.tags.get(n, "")) for n in item.rows), *(sample_text(m.samples[q.name], q) for q in quantities)]
            for m in shown
        ]
        parts.append(table(item.name + "-table", (*item.rows, *(q.name for q in quantities)), rows))
    return "\n".join([*parts, paragraph(item.note, "soft"), *map(figure, pictures)])


def by_columns(item: Experiment, measured: Sequence[Measured], quantity: Quantity) -> str:
    columns, cells = tables.pivot(item, measured)
    rows = [
        [*map(text, row), *(Text("") if m is None else sample_text(m.samples[quantity.name], quantity) for m in own)]
        for row, own in cells.items()
    ]
    slug = f"{item.name}-{quantity.name.replace(' ', '-')}"
    return table(slug, (*item.rows, *(" ".join(c) for c in columns)), rows)


def figure(picture: Picture) -> str:
    return f"<figure>{svg(picture)}<figcaption>{escape(picture.caption)}</figcaption></figure>"


def verdicts(store: Store, quick: bool) -> str:
    """The paper's claims; nothing when no claim can be judged."""
    found = [v for v in claims.verdicts(store, quick) if v[1] not in (claims.MISSING, claims.UNTESTABLE) or v[2]]
    measured = [v for v in found if v[1] not in (claims.MISSING, claims.UNTESTABLE)]
    if not measured or quick:
        return ""
    rows = [
        [text(c.text, True), Text(f"<span class='verdict'>{v}</span>", v), text(said, True)] for c, v, said in found
    ]
    return '<h2 id="claims">The paper\'s claims</h2>' + table(
        "claims-table", ("claim", "verdict", "measured"), rows, True
    )


def splits(pairs: Pairs) -> str:
    """Imbalance of each party's pool, one line a party and kind of split (first seed)."""
    rows, seen = [], set()
    for cell, records in pairs:
        split = dig(records[0], "split") if records else None
        name = (cell.config.dataset, cell.config.parties, cell.config.pool, cell.config.profile)
        if not isinstance(split, Mapping) or not split.get("pool_counts") or name in seen:
            continue
        seen.add(name)
        for m, counts in enumerate(split["pool_counts"]):
            measures = [_at(split.get(key), m) for key in ("gamma", "mid", "wcs")]
            rows.append([
                text(cell.config.dataset), text(cell.config.parties), text(m + 1), figure_text(sum(counts), 0),
                *(figure_text(v, d) for v, d in zip(measures, (1, 3, 3), strict=True)), text(_numbers(counts), True),
            ])  # fmt: skip
    head = ("data", "parties", "party", "pool rows", "Gamma", "MID", "WCS", "rows of each class")
    return table("splits", head, rows)


def _at(values: Any, index: int) -> float | None:
    return values[index] if isinstance(values, Sequence) and index < len(values) else None


def _numbers(counts: Sequence[float]) -> str:
    return ", ".join(f"{int(c):,}" for c in counts)


def messages(pairs: Pairs) -> str:
    rows = [
        [*cell_name(cell), text(kind), figure_text(up, 0), figure_text(down, 0)]
        for cell, records in pairs
        for kind, (up, down) in by_type(records).items()
    ]
    return table("messages", (*NAMES, "message", "bytes up", "bytes down"), rows)


def settings(pairs: Pairs) -> str:
    """Every setting of every configuration, folded."""
    parts = []
    for cell, records in pairs:
        first = records[0]
        kept = {
            **cell.config.identity(), "settings": first.get("settings"), "privacy": first.get("privacy"),
            "seeds": [r.get("seed") for r in records], "engine": first.get("engine"), "device": first.get("device"),
            "machine": first.get("machine"), "commit": first.get("commit"), "versions": first.get("versions"),
            "split_hash": first.get("split_hash"),
        }  # fmt: skip
        shown = json.dumps({k: v for k, v in kept.items() if v is not None}, indent=1, default=str)
        name = " ".join(part.sort for part in cell_name(cell) if part.sort)
        parts.append(f"<details><summary>{escape(name)}</summary><pre>{escape(shown)}</pre></details>")
    return "\n".join(parts)


def sample_text(sample: Sample, quantity: Quantity) -> Text:
    """Ours ± std (n), the paper's number in grey, the difference in green or red."""
    shown = number(sample.mean, quantity.digits)
    if sample.std is not None:
        shown += f" ± {number(sample.std, quantity.digits)}"
    if sample.n:
        shown += f" <span class='soft'>({sample.n})</span>"
    if sample.printed is not None:
        shown += f"<br><span class='paper'>paper {number(sample.printed, quantity.digits)}</span>"
    if sample.difference is not None:
        way = "up" if sample.difference >= 0 else "down"
        shown += f" <span class='{way}'>{sample.difference:+,.{quantity.digits}f}</span>"
    return Text(shown, "" if sample.mean is None else repr(sample.mean))
