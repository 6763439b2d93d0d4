from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.tables import comma_separated, grids, markdown_table
from tests.reproduction import fake


def test_without_records_the_paper_s_numbers_still_stand() -> None:
    experiment = EXPERIMENTS["ablation"]
    text = markdown_table(grids(experiment, measure(experiment, Store([])))[0])
    assert "| (81.6) |" in text


def test_grids_hold_every_cell_once() -> None:
    for experiment in EXPERIMENTS.values():
        measured = measure(experiment, Store(fake.records(experiment.cells)))
        grid = grids(experiment, measured)[0]
        numbers = [text for row in grid.texts for text in row[len(experiment.rows) :] if text]
        shown = experiment.quantities[:1] if experiment.columns else experiment.quantities
        assert len(numbers) == sum(
            item.samples[q.name].n > 0 for item in measured for q in shown
        ), experiment.name


def test_csv_has_the_difference_to_the_paper() -> None:
    experiment = EXPERIMENTS["selection"]
    lines = comma_separated(
        experiment, measure(experiment, Store(fake.records(experiment.cells)))
    ).splitlines()
    assert lines[0] == "strategy,aligned,quantity,mean,std,seeds,paper,paper_std,difference"
    fields = lines[1].split(",")
    assert fields[:3] == ["cosine_similarity", "200", "accuracy (%)"]
    assert abs(float(fields[3]) - float(fields[6]) - float(fields[8])) < 1e-3


def test_lengths_of_a_curve_stand_in_the_order_of_numbers() -> None:
    experiment = EXPERIMENTS["convergence"]
    grid = grids(experiment, measure(experiment, Store(fake.records(experiment.cells))))[0]
    lengths = [int(name) for name in grid.head[len(experiment.rows) :]]
    assert lengths == sorted(set(lengths))


def test_the_title_says_how_many_seeds_and_an_entry_where_they_differ() -> None:
    experiment = EXPERIMENTS["selection"]
    records = fake.records(experiment.cells, seeds=(0, 1, 2))
    grid = grids(experiment, measure(experiment, Store(records[:-1])))[0]
    assert grid.title == "accuracy (%): ours ± standard deviation over 3 seeds (paper)"
    odd = [text for row in grid.texts for text in row if "seeds" in text]
    assert len(odd) == 1
    assert ", 2 seeds (84.2)" in odd[0]


def test_columns_and_rows_that_nothing_fills_are_left_out() -> None:
    experiment = EXPERIMENTS["accuracy_images"]
    some = [cell for cell in experiment.cells if cell.tags["method"] in ("laser", "fedcvt")]
    recall = [
        g
        for g in grids(experiment, measure(experiment, Store(fake.records(experiment.cells))))
        if "unseen" in g.title
    ]
    assert all("zero_shot" in name for name in recall[0].head[2:])
    balanced = grids(experiment, measure(experiment, Store(fake.records(some))))[1]
    assert {row[1] for row in balanced.texts} == {"laser", "fedcvt"}
