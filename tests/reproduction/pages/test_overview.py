"""An experiment at a glance: a dot per cell, a hollow one per number of the paper, panels where
they are few."""

from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.pages.overview import overview
from tests.reproduction import fake


def test_every_cell_and_every_number_of_the_paper_is_drawn_once() -> None:
    for name in ("parties", "rare_classes", "noise_prototypes"):
        experiment = EXPERIMENTS[name]
        measured = measure(experiment, Store(fake.records(experiment.cells)))
        (picture,) = overview(experiment, measured)
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
        (picture,) = overview(
            experiment, measure(experiment, Store(fake.records(experiment.cells)))
        )
        panels[name] = len(picture.figure.axes)
    assert panels == {"parties": 2, "rare_classes": 1}


def test_nothing_measured_is_nothing_drawn() -> None:
    assert overview(EXPERIMENTS["parties"], measure(EXPERIMENTS["parties"], Store([]))) == []
