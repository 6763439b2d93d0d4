"""Curves: accuracy against bytes and against rounds, losses, gradient norm with its fitted slope on
log axes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from protoevfl.reproduction import record_stats
from protoevfl.reproduction.pages.averages import Pairs, groups, mean, spread
from protoevfl.reproduction.pages.pictures import Picture, colour, marker, panels
from protoevfl.reproduction.spec import Record


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
    caption = "Gradient norm and loss of the global objective against rounds, log axes, with fitted slope (dashed)"
    return [Picture("gradients", caption, figure)]


def _fitted(ax: Any, records: Sequence[Record], colour_: str, name: str) -> None:
    values = record_stats.mean_squares(
        _mean_curve([record_stats.curve(r, "gradient_norm") for r in records])
    )
    t = np.arange(1, len(values) + 1)
    pairs = [(math.log(a), math.log(b)) for a, b in zip(t, values, strict=True) if a > 1 and b > 0]
    b = record_stats.slope([x for x, _ in pairs], [y for _, y in pairs]) if len(pairs) > 1 else None
    ax.plot(t, values, color=colour_, lw=1.3, label=name if b is None else f"{name}: T^{b:.2f}")
    if b is not None:
        a = sum(y for _, y in pairs) / len(pairs) - b * sum(x for x, _ in pairs) / len(pairs)
        ax.plot(t[1:], np.exp(a) * t[1:] ** b, color=colour_, lw=0.9, ls="--")
