"""Figures by name: what the records allow, the same each time."""

import json

from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Store
from protoevfl.reproduction.pages import figures
from tests.reproduction import fake


def test_every_figure_an_experiment_asks_for_exists() -> None:
    assert {name for e in EXPERIMENTS.values() for name in e.figures} <= {
        "overview",
        *figures.FIGURES,
    }


def test_figures_draw_what_is_there_and_leave_out_the_rest() -> None:
    experiment = EXPERIMENTS["accuracy_tables"]
    records = fake.records([c for c in experiment.cells if c.config.aligned == 200])
    assert {p.slug for p in figures.draw(experiment, Store(records))} == {
        "accuracy-tables-overview",
        "accuracy-tables-confusion",
        "accuracy-tables-priors",
    }
    bare = json.loads(json.dumps(records))
    for record in bare:
        del record["metrics"]["confusion"], record["metrics"]["priors"]
    assert [p.slug for p in figures.draw(experiment, Store(bare))] == ["accuracy-tables-overview"]
