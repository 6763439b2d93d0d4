"""The figures by name; an experiment lists the names it wants."""

from collections.abc import Callable
from dataclasses import replace

from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.pages import classes, curves, traffic
from protoevfl.reproduction.pages.averages import Pairs
from protoevfl.reproduction.pages.overview import overview
from protoevfl.reproduction.pages.pictures import Picture
from protoevfl.reproduction.spec import Experiment

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
    "messages": traffic.messages,
}


def draw(experiment: Experiment, store: Store, quick: bool = False) -> list[Picture]:
    """What an experiment's records allow to be drawn, in the order of its list."""
    pairs = [(cell, store.of(cell)) for cell in experiment.chosen(quick)]
    drawn: list[Picture] = []
    for name in experiment.figures:
        if name == "overview":
            drawn += overview(experiment, measure(experiment, store, quick))
        else:
            drawn += FIGURES[name](pairs)
    return [replace(p, slug=f"{experiment.name.replace('_', '-')}-{p.slug}") for p in drawn]
