"""The figures by name; an experiment lists the names it wants."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from protoevfl.reproduction.measure import Measured, Sample, Store, measure
from protoevfl.reproduction.pages import classes, curves
from protoevfl.reproduction.pages.averages import Pairs
from protoevfl.reproduction.pages.pictures import MARKERS, Picture, panels
from protoevfl.reproduction.spec import Experiment
from protoevfl.reproduction.tables import Place, label, pivot

FIGURES: dict[str, Callable[[Pairs], list[Picture]]] = {
    "accuracy_bytes": curves.accuracy_bytes,
    "accuracy_rounds": curves.accuracy_rounds,
    "losses": curves.losses,
    "gradients": curves.gradients,
    "recall": classes.recall,
    "confusion": classes.confusion,
    "gate": classes.gate,
    "priors": classes.priors,
    "pools": classes.pools,
    "messages": curves.messages,
}


def draw(experiment: Experiment, store: Store, quick: bool = False) -> list[Picture]:
    """What an experiment's records allow to be drawn, in the order of its list."""
    pairs = [(cell, store.of(cell)) for cell in experiment.chosen(quick)]
    drawn: list[Picture] = []
    for name in experiment.figures:
        if name == "overview":
            drawn += _overview(experiment, measure(experiment, store, quick))
        else:
            drawn += FIGURES[name](pairs)
    return [replace(p, slug=f"{experiment.name.replace('_', '-')}-{p.slug}") for p in drawn]


MOST_PANELS = 4  # a first row tag with more values than this names lines of one panel


def _overview(experiment: Experiment, measured: Sequence[Measured]) -> list[Picture]:
    """One panel per value of the first row tag, one line per row; columns by colour (first tag) and
    marker (second)."""
    quantity = experiment.quantities[0]
    known = [item for item in measured if item.samples[quantity.name].n]
    if not known:
        return []
    columns, rows = pivot(experiment, known)
    firsts = list(dict.fromkeys(row[0] for row in rows))
    apart = len(experiment.rows) > 1 and len(firsts) <= MOST_PANELS
    groups = (
        [[row for row in rows if row[0] == first] for first in firsts] if apart else [list(rows)]
    )
    longest = max(map(len, groups))
    across, width = (2, 5.4) if apart else (1, 8.6)
    figure, axes = panels(len(groups), width=width, height=1.1 + 0.27 * longest, across=across)
    values = [item.samples[quantity.name].mean or 0.0 for item in known]
    for ax, places in zip(axes, groups, strict=True):
        for line, place in enumerate(places):
            for number, (column, item) in enumerate(zip(columns, rows[place], strict=True)):
                if item is not None and item.samples[quantity.name].n:
                    height = line + 0.6 * ((number + 0.5) / len(columns) - 0.5)
                    _dot(ax, item.samples[quantity.name], height, *_look(columns, column))
        ax.set_yticks(range(len(places)), [" ".join(place[apart:]) for place in places], fontsize=8)
        ax.set_ylim(len(places) - 0.5, -0.5)
        if min(values) > 0 and max(values) > 20 * min(values) and quantity.unit != "%":
            ax.set_xscale("log")
        ax.set(title=places[0][0] if apart else "", xlabel=label(quantity))
    if columns != [()]:
        handles = [
            axes[0].plot([], [], marker=m, color=c, ls="", ms=6)[0]
            for m, c in (_look(columns, x) for x in columns)
        ]
        names = [" ".join(column) for column in columns]
        figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8)
    printed = any(item.samples[quantity.name].printed is not None for item in known)
    caption = f"{experiment.title}: {label(quantity)}, mean and standard deviation over seeds"
    return [Picture("overview", caption + ("; hollow: the paper" if printed else ""), figure)]


def _look(columns: Sequence[Place], column: Place) -> tuple[str, str]:
    """Marker and colour of a column."""
    colours = list(dict.fromkeys(c[:1] for c in columns))
    markers = list(dict.fromkeys(c[1:] for c in columns))
    return MARKERS[markers.index(column[1:]) % len(MARKERS)], f"C{colours.index(column[:1]) % 10}"


def _dot(ax: Any, sample: Sample, height: float, marker: str, colour: str) -> None:
    ax.errorbar(
        [sample.mean], [height], xerr=[sample.std or 0.0], color=colour, marker=marker, ms=6, lw=1.5
    )
    if sample.printed is not None:
        ax.plot(
            [sample.printed], [height], marker="D", ms=6, mfc="none", mec=colour, mew=1.0, ls=""
        )
