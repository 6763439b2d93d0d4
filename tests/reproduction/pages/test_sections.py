"""Tables of the page: the same numbers as the Markdown tables, every setting, one line per party's
pool."""

from protoevfl.bench.world import RunConfig
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Sample, Store, measure
from protoevfl.reproduction.pages import sections
from protoevfl.reproduction.spec import ACCURACY, Cell
from protoevfl.reproduction.tables import grids
from tests.reproduction import fake


def pair(seeds: int = 2, **config: object) -> tuple[Cell, list[dict[str, object]]]:
    chosen = RunConfig(**{"dataset": "mine", **config})  # type: ignore[arg-type]
    return Cell({"method": chosen.method}, chosen), [
        fake.record(chosen, seed) for seed in range(seeds)
    ]


def test_an_experiment_has_the_rows_and_columns_of_its_table() -> None:
    experiment = EXPERIMENTS["parties"]
    measured = measure(experiment, Store(fake.records(experiment.cells)))
    grid, tables = grids(experiment, measured)[0], sections.experiment(experiment, measured)
    assert tables[0].head == list(grid.head)
    assert len(tables[0].rows) == len(grid.texts)
    assert len(tables) == len(experiment.quantities)


def test_results_leave_out_records_without_metrics_and_one_seed_has_no_spread() -> None:
    cell, _ = pair()
    assert not sections.results([(cell, [{"seed": 0}])]).rows
    one, two = (sections.results([pair(seeds)]).head for seeds in (1, 2))
    assert set(two) - set(one) == {"± std"}
    assert "AUC %" not in two  # ten classes have none


def test_a_split_stands_once_with_a_line_for_each_party() -> None:
    pairs = [pair(method="vanilla", parties=3), pair(method="local", parties=3)]
    assert len(sections.splits(pairs).rows) == 3
    assert not sections.splits([(pairs[0][0], [{"seed": 0}])]).rows


def test_every_setting_is_there() -> None:
    cell, records = pair(overrides={"epochs": 7})
    records[0]["settings"], records[0]["commit"] = {"name": "value"}, "abc123"
    ((name, kept),) = sections.settings([(cell, records)])
    assert "epochs 7" in name
    assert all(part in kept for part in ('"name": "value"', "abc123", '"epochs": 7'))


def test_verdicts_need_something_measured() -> None:
    assert sections.verdicts(Store([]), quick=False) is None
    records = fake.records(EXPERIMENTS["accuracy_images"].cells)
    judged = sections.verdicts(Store(records), quick=False)
    assert judged is not None
    assert all(row[2].shown for row in judged.rows)
    small = fake.records(EXPERIMENTS["accuracy_images"].quick)
    assert sections.verdicts(Store(small), quick=True) is None  # it measures nothing


def test_a_sample_stands_beside_the_paper_s_number() -> None:
    entry = sections._sample_text(Sample(values=(80.0, 82.0), printed=75.0), ACCURACY)
    assert entry == ("81.0 ± 1.4 (2)", "81.0", False, "75.0", "+6.0")
