"""Figures by name: what the records allow, the same each time."""

import json

from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.pages import figures
from protoevfl.reproduction.pages.figures import _overview
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


def test_every_cell_and_every_number_of_the_paper_is_drawn_once() -> None:
    for name in ("parties", "rare_classes", "noise_prototypes"):
        experiment = EXPERIMENTS[name]
        measured = measure(experiment, Store(fake.records(experiment.cells)))
        (picture,) = _overview(experiment, measured)
        marks = [line for ax in picture.figure.axes for line in ax.lines if len(line.get_xdata())]
        hollow = [line for line in marks if line.get_markerfacecolor() == "none"]
        samples = [item.samples["accuracy"] for item in measured]
        assert sorted(line.get_xdata()[0] for line in hollow) == sorted(
            s.printed for s in samples if s.printed
        )
        dots = [line.get_xdata()[0] for line in marks if line not in hollow]
        assert sorted(dots) == sorted(s.mean for s in samples)


def test_few_data_sets_have_a_panel_each_many_classes_share_one() -> None:
    panels = {}
    for name in ("parties", "rare_classes"):
        experiment = EXPERIMENTS[name]
        (picture,) = _overview(
            experiment, measure(experiment, Store(fake.records(experiment.cells)))
        )
        panels[name] = len(picture.figure.axes)
    assert panels == {"parties": 2, "rare_classes": 1}


def test_nothing_measured_is_nothing_drawn() -> None:
    assert _overview(EXPERIMENTS["parties"], measure(EXPERIMENTS["parties"], Store([]))) == []
