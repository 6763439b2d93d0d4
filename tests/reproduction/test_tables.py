from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.tables import comma_separated, grids, markdown
from tests.reproduction import fake


def test_without_records_the_paper_s_numbers_still_stand() -> None:
    experiment = EXPERIMENTS["ablation"]
    text = markdown(experiment, measure(experiment, Store([])))
    assert "–; paper 81.6" in text


def test_grids_hold_every_cell_once() -> None:
    for experiment in EXPERIMENTS.values():
        measured = measure(experiment, Store(fake.records(experiment.cells)))
        grid = grids(experiment, measured)[0]
        numbers = [text for row in grid.texts for text in row[len(experiment.rows) :] if text]
        expected = len(measured) if experiment.columns else len(measured) * len(experiment.quantities)
        assert len(numbers) == expected, experiment.name


def test_csv_has_the_difference_to_the_paper() -> None:
    experiment = EXPERIMENTS["selection"]
    lines = comma_separated(experiment, measure(experiment, Store(fake.records(experiment.cells)))).splitlines()
    assert lines[0] == "strategy,aligned,quantity,mean,std,seeds,paper,paper_std,difference"
    fields = lines[1].split(",")
    assert fields[:3] == ["cosine_similarity", "200", "accuracy (%)"]
    assert abs(float(fields[3]) - float(fields[6]) - float(fields[8])) < 1e-3


def test_lengths_of_a_curve_stand_in_the_order_of_numbers() -> None:
    experiment = EXPERIMENTS["convergence"]
    grid = grids(experiment, measure(experiment, Store(fake.records(experiment.cells))))[0]
    lengths = [int(name) for name in grid.head[len(experiment.rows) :]]
    assert lengths == sorted(set(lengths))
