"""Curves: accuracy against bytes and rounds, losses, gradient norm; bytes by message type."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from protoevfl.reproduction import record_stats
from protoevfl.reproduction.pages.averages import Pairs, groups, mean, spread
from protoevfl.reproduction.pages.pictures import Picture, colour, marker, panels
from protoevfl.reproduction.spec import Record, dig


def accuracy_bytes(pairs: Pairs) -> list[Picture]:
    return _accuracy(pairs, "bytes", "megabytes across the border", "Accuracy against bytes")


def accuracy_rounds(pairs: Pairs) -> list[Picture]:
    return _accuracy(pairs, "rounds", "exchanges (request and reply)", "Accuracy against exchanges")


def _cost(records: Sequence[Record], kind: str) -> float | None:
    if kind == "rounds":
        exchanges = mean(records, "rounds")
        return None if exchanges is None else float(exchanges)
    totals = [t for t in map(record_stats.total_bytes, records) if t is not None]
    return sum(totals) / len(totals) / 1e6 if totals else None


def _accuracy(pairs: Pairs, kind: str, axis: str, title: str) -> list[Picture]:
    datasets = groups(pairs, "dataset")
    if not datasets:
        return []
    figure, axes = panels(len(datasets))
    for ax, ((dataset,), cells) in zip(axes, datasets.items(), strict=True):
        for position, ((method,), points) in enumerate(groups(cells, "method").items()):
            rows = []
            for _, records in points:
                x, y = _cost(records, kind), mean(records, "metrics.accuracy")
                if x is not None and y is not None and x > 0:
                    rows.append((x, 100 * float(y), 100 * spread(records, "metrics.accuracy")))
            rows.sort()
            if rows:
                xs, ys, errors = zip(*rows, strict=True)
                ax.errorbar(
                    xs,
                    ys,
                    yerr=errors,
                    color=colour(method, position),
                    marker=marker(position),
                    ms=4,
                    lw=1.3,
                    capsize=2,
                    label=method,
                )
        _finish(ax, dataset, axis, "test accuracy (%)", log_x=True)
    return [
        Picture(
            f"accuracy-{kind}",
            f"{title}; every point is a run of its own length, bars: std over seeds",
            figure,
        )
    ]


def _finish(ax: Any, title: str, x: str, y: str, log_x: bool = False, log_y: bool = False) -> None:
    if log_x:
        ax.set_xscale("log")
    if log_y:
        ax.set_yscale("log")
    ax.set(title=title, xlabel=x, ylabel=y)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=8)


def losses(pairs: Pairs) -> list[Picture]:
    """Training loss of the longest run of each method, on log axes."""
    datasets = groups(pairs, "dataset")
    figure, axes = panels(len(datasets))
    drawn = False
    for ax, ((dataset,), cells) in zip(axes, datasets.items(), strict=bool(datasets)):
        for position, ((method,), points) in enumerate(groups(cells, "method").items()):
            _, records = max(points, key=lambda point: int(point[0].tags.get("length", 0)))
            values = _mean_curve([record_stats.curve(record, "loss") for record in records])
            if len(values) > 1:
                drawn = True
                ax.plot(
                    range(1, len(values) + 1),
                    values,
                    color=colour(method, position),
                    label=method,
                    lw=1.3,
                )
        _finish(ax, dataset, "epoch or round", "training loss", log_x=True, log_y=True)
    return (
        [Picture("losses", "Training loss against epochs or rounds, mean over seeds", figure)]
        if drawn
        else []
    )


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    shortest = min((len(c) for c in curves), default=0)
    return [sum(c[t] for c in curves) / len(curves) for t in range(shortest)]


def gradients(pairs: Pairs) -> list[Picture]:
    """Mean squared gradient norm of the global loss up to round T, with the fitted power of T; the
    loss beside it."""
    cells = [
        (c, r)
        for c, r in pairs
        if any(len(record_stats.curve(record, "gradient_norm")) > 1 for record in r)
    ]
    if not cells:
        return []
    datasets = groups(cells, "dataset")
    figure, axes = panels(2 * len(datasets))
    for row, ((dataset,), points) in enumerate(datasets.items()):
        norm, loss = axes[2 * row], axes[2 * row + 1]
        for position, (cell, records) in enumerate(points):
            _fitted(norm, records, f"C{position}", f"tau = {cell.tags.get('tau', '?')}")
            values = _mean_curve([record_stats.curve(record, "loss") for record in records])
            if values:
                loss.plot(range(1, len(values) + 1), values, color=f"C{position}", lw=1.3)
        _finish(
            norm,
            f"{dataset}: squared gradient norm, mean up to T",
            "rounds T",
            "mean |grad|^2",
            True,
            True,
        )
        _finish(loss, f"{dataset}: global loss", "rounds T", "loss", True, True)
    caption = (
        "Gradient norm and loss of the global objective against rounds, log axes, with fitted "
        "slope (dashed)"
    )
    return [Picture("gradients", caption, figure)]


def _fitted(ax: Any, records: Sequence[Record], colour_: str, name: str) -> None:
    values = record_stats.mean_squares(
        _mean_curve([record_stats.curve(r, "gradient_norm") for r in records])
    )
    t = np.arange(1, len(values) + 1)
    power = record_stats.power_law(values)
    label = name if power is None else f"{name}: T^{power[0]:.2f}"
    ax.plot(t, values, color=colour_, lw=1.3, label=label)
    if power is not None:
        b, a = power
        ax.plot(t[1:], np.exp(a) * t[1:] ** b, color=colour_, lw=0.9, ls="--")


def by_type(records: Iterable[Record]) -> dict[str, tuple[float, float]]:
    """Mean bytes (up, down) of each message type over records."""
    runs = [dig(record, "bytes.by_type") or {} for record in records]
    kinds = dict.fromkeys(kind for run in runs for kind in run)
    return {
        kind: (
            sum(run.get(kind, {}).get("up", 0) for run in runs) / len(runs),
            sum(run.get(kind, {}).get("down", 0) for run in runs) / len(runs),
        )
        for kind in kinds
    }


def messages(pairs: Pairs) -> list[Picture]:
    """Bytes of each message type, one panel per data set, longest run of each method."""
    datasets = groups(pairs, "dataset")
    shown = {
        name: cells for (name,), cells in datasets.items() if any(by_type(r) for _, r in cells)
    }
    if not shown:
        return []
    figure, axes = panels(len(shown), width=5.0, height=3.2)
    kinds = list(
        dict.fromkeys(kind for cells in shown.values() for _, r in cells for kind in by_type(r))
    )
    for ax, (dataset, cells) in zip(axes, shown.items(), strict=True):
        methods = groups(cells, "method")
        for row, points in enumerate(methods.values()):
            _, records = max(points, key=lambda point: int(point[0].tags.get("length", 0)))
            for kind, (up, down) in by_type(records).items():
                number = kinds.index(kind)
                ax.scatter(
                    [max(up + down, 1)], [row], marker=marker(number), color=f"C{number % 10}", s=36
                )
        for number, kind in enumerate(kinds):
            ax.scatter(
                [np.nan], [np.nan], marker=marker(number), color=f"C{number % 10}", label=kind
            )
        ax.set_yticks(range(len(methods)), [name for (name,) in methods])
        ax.set_ylim(-0.6, len(methods) - 0.4)
        ax.set_xscale("log")
        ax.set(title=dataset, xlabel="bytes in both directions")
        ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return [
        Picture(
            "messages",
            "Bytes across the border by message type, longest run of each method",
            figure,
        )
    ]
