"""Pictures by class: recall with rare classes marked, confusion, gate weights, priors, the pools'
class counts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from protoevfl.reproduction.pages.averages import Array, Pairs, groups, mean
from protoevfl.reproduction.pages.pictures import Picture, class_names, colour, marker, panels
from protoevfl.reproduction.spec import Cell, Record, dig

WORDS = {
    "normal": "all classes labelled",
    "few_shot": "few labels of the marked",
    "zero_shot": "no label of the marked",
}
MAIN = "proto_evfl"


def _main(pairs: Pairs) -> list[tuple[Cell, Sequence[Record]]]:
    """Proto-EVFL's cells with the fewest aligned rows, or those of whatever method there is."""
    return _fewest([(c, r) for c, r in pairs if r and c.tags.get("method") == MAIN] or pairs)


def _fewest(pairs: Pairs) -> list[tuple[Cell, Sequence[Record]]]:
    cells = [(c, r) for c, r in pairs if r]
    fewest = min((c.config.aligned for c, _ in cells), default=0)
    return [(c, r) for c, r in cells if c.config.aligned == fewest]


def recall(pairs: Pairs) -> list[Picture]:
    """Recall of each class, one panel per data set and setting; rare and unseen classes on a shaded
    ground."""
    by_setting = groups(_fewest(pairs), "dataset", "setting", "classes")
    by_setting = dict(list(by_setting.items())[:8])
    if not by_setting:
        return []
    figure, axes = panels(len(by_setting), width=5.4, height=3.6)
    lines: dict[str, Any] = {}  # the first of each method, for one legend
    places: dict[str, int] = {}
    for ax, ((dataset, setting, _), cells) in zip(axes, by_setting.items(), strict=True):
        for cell, records in cells:
            values = mean(records, "metrics.per_class_recall")
            if values is None:
                continue
            method = cell.tags.get("method", "")
            n = places.setdefault(method, len(places))
            drawn = ax.plot(
                range(len(values)),
                100 * values,
                marker=marker(n),
                color=colour(method, n),
                lw=0.8,
                ms=4,
            )
            lines.setdefault(method, drawn[0])
            ticks = class_names(dataset, len(values))
            ax.set_xticks(range(len(values)), ticks, rotation=60, ha="right", fontsize=8)
        for z in cells[0][0].config.classes:
            ax.axvspan(z - 0.5, z + 0.5, color="#f6d7a7", alpha=0.6, zorder=0)
        ax.set(
            title=f"{dataset}: {WORDS.get(setting, setting)}", ylabel="recall (%)", ylim=(-3, 103)
        )
    if not lines:
        return []
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=5, fontsize=8)
    return [Picture("recall", "Recall by class, mean over seeds; shaded: rare or unseen", figure)]


def _heat(
    ax: Any, values: Array, x: Sequence[str], y: Sequence[str], top: float, digits: int
) -> None:
    ax.imshow(values, cmap="Blues", vmin=0, vmax=top, aspect="auto")
    ax.grid(visible=False)
    ax.set_xticks(range(len(x)), x, rotation=60, ha="right", fontsize=7)
    ax.set_yticks(range(len(y)), y, fontsize=7)
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value) and value >= 0.5 * 10**-digits:
            ax.text(j, i, f"{value:.{digits}f}", ha="center", va="center", fontsize=6,
                    color="white" if value > 0.6 * top else "black")  # fmt: skip


def _heatmaps(pairs: Pairs, path: str, slug: str, caption: str) -> list[Picture]:
    """One panel per cell of Proto-EVFL for a table (rows, Z) in the metrics."""
    shown = [(c, m) for c, r in _main(pairs) if (m := mean(r, path)) is not None and m.ndim == 2][
        :6
    ]
    if not shown:
        return []
    figure, axes = panels(len(shown), width=5.2, height=4.4 if slug == "confusion" else 2.8)
    for ax, (cell, values) in zip(axes, shown, strict=True):
        names = class_names(cell.tags["dataset"], values.shape[1])
        square = slug == "confusion"
        if square:
            values = 100 * values / np.maximum(values.sum(1, keepdims=True), 1)
        rows = names if square else [f"party {m + 1}" for m in range(len(values))]
        _heat(
            ax,
            values,
            names,
            rows,
            100 if square else max(float(np.nanmax(values)), 1e-9),
            0 if square else 2,
        )
        title = f"{cell.tags['dataset']}, {cell.tags.get('setting', '')}"
        ax.set(
            title=title, xlabel="predicted" if square else "class", ylabel="true" if square else ""
        )
    return [Picture(slug, caption, figure)]


def confusion(pairs: Pairs) -> list[Picture]:
    return _heatmaps(
        pairs,
        "metrics.confusion",
        "confusion",
        "Confusion of Proto-EVFL, % of the true class, all seeds",
    )


def gate(pairs: Pairs) -> list[Picture]:
    return _heatmaps(
        pairs, "metrics.gate", "gate", "Gate weight of each party by true class, mean over seeds"
    )


def priors(pairs: Pairs) -> list[Picture]:
    """Estimated against true class rates of each party's pool."""
    shown = [(c, list(r)) for c, r in _main(pairs) if any(_priors(record) for record in r)][:4]
    if not shown:
        return []
    figure, axes = panels(len(shown), width=4.2, height=3.8)
    for ax, (cell, records) in zip(axes, shown, strict=True):
        top = 0.0
        for record in records:
            pair = _priors(record)
            if pair is None:
                continue
            for m, (true, estimated) in enumerate(zip(*pair, strict=True)):
                label = f"party {m + 1}" if record is records[0] else None
                ax.scatter(
                    100 * true,
                    100 * estimated,
                    s=12,
                    color=f"C{m}",
                    marker=marker(m),
                    alpha=0.7,
                    label=label,
                )
                top = max(top, 100 * float(true.max()), 100 * float(estimated.max()))
        ax.plot([0, top], [0, top], color="#888888", lw=0.8)
        ax.set(
            title=f"{cell.tags['dataset']}, {cell.tags.get('setting', '')}",
            xlabel="true rate in the pool (%)",
            ylabel="estimated (%)",
        )
        ax.legend(fontsize=8)
    return [
        Picture(
            "priors", "Class rates of the pools: pseudo-labels against true (all seeds)", figure
        )
    ]


def _priors(record: Record) -> tuple[Array, Array] | None:
    """True and estimated rates, both (M, Z)."""
    priors = dig(record, "metrics.priors")
    estimated = priors.get("estimated") if isinstance(priors, dict) else priors
    counts = dig(record, "split.pool_counts")
    if estimated is None or counts is None:
        return None
    p, c = np.asarray(estimated, dtype=float), np.asarray(counts, dtype=float)
    return (c / c.sum(1, keepdims=True), p) if p.shape == c.shape else None


def pools(pairs: Pairs) -> list[Picture]:
    """Rows of each class in each party's pool, first seed."""
    by_dataset: dict[str, Record] = {}
    for cell, records in pairs:
        if records and dig(records[0], "split.pool_counts"):
            by_dataset.setdefault(cell.config.dataset, records[0])
    if not by_dataset:
        return []
    figure, axes = panels(len(by_dataset), width=5.0, height=3.2)
    for ax, (dataset, record) in zip(axes, by_dataset.items(), strict=True):
        counts = np.asarray(record["split"]["pool_counts"], dtype=float)  # (M, Z)
        left = np.zeros(len(counts))
        names = class_names(dataset, counts.shape[1])
        for z in range(counts.shape[1]):
            ax.barh(range(len(counts)), counts[:, z], left=left, label=names[z], color=f"C{z % 10}")
            left += counts[:, z]
        ax.set_yticks(range(len(counts)), [f"party {m + 1}" for m in range(len(counts))])
        ax.invert_yaxis()
        ax.set(title=f"{dataset}, seed {record.get('seed')}", xlabel="rows in the pool")
        ax.legend(fontsize=6, ncols=2, loc="center left", bbox_to_anchor=(1, 0.5))
    return [Picture("pools", "Classes in the parties' pools", figure)]
