import statistics

import pytest

from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Sample, Store, measure
from tests.reproduction import fake


def test_sample_is_mean_and_sample_deviation() -> None:
    s = Sample((1.0, 2.0, 4.0), printed=2.0)
    assert s.mean == statistics.mean(s.values)
    assert s.std == pytest.approx(statistics.stdev(s.values))
    assert s.difference == s.mean - 2.0
    assert (Sample((1.0,)).std, Sample().mean, Sample().difference) == (None, None, None)


def test_values_are_those_of_the_cell_s_own_records() -> None:
    experiment = EXPERIMENTS["ablation"]
    records = fake.records(experiment.cells, seeds=(0, 1, 2))
    cell = experiment.cells[1]
    mine = [100 * fake.record(cell.config, s)["metrics"]["accuracy"] for s in (0, 1, 2)]
    found = measure(experiment, Store(records))[1]
    assert found.samples["accuracy"].values == tuple(mine)
    assert found.samples["accuracy"].printed == 79.42


def test_of_two_records_of_a_seed_the_last_counts() -> None:
    cell = EXPERIMENTS["ablation"].cells[0]
    old, new = fake.record(cell.config, 0), fake.record(cell.config, 0)
    new["metrics"]["accuracy"] = 0.123
    found = measure(EXPERIMENTS["ablation"], Store([old, new]))[0]
    assert found.samples["accuracy"].values == pytest.approx((12.3,))


def test_reach_is_the_shortest_run_within_a_point() -> None:
    experiment = EXPERIMENTS["rounds"]
    accuracy = {"2": 0.50, "5": 0.692, "10": 0.70, "20": 0.699, "40": 0.69, "80": 0.70}
    records = []
    for cell in experiment.cells:
        if cell.tags["method"] == "vanilla":
            record = fake.record(cell.config, 0)
            record["metrics"]["accuracy"] = accuracy[cell.tags["length"]]
            records.append(record)
    found = {m.tags["method"]: m for m in measure(experiment, Store(records))}
    assert found["vanilla"].samples["rounds"].values == (5.0,) * 4  # one value per data set
    assert found["vanilla"].samples["rounds"].printed == 11.0
    assert found["proto_evfl"].samples["rounds"].n == 0


def test_seconds_stand_beside_the_paper_s_hours_in_seconds() -> None:
    experiment = EXPERIMENTS["training_time"]
    found = measure(experiment, Store(fake.records(experiment.cells)))
    vanilla = next(m for m in found if m.tags["method"] == "vanilla" and m.tags["aligned"] == "200")
    assert vanilla.samples["seconds"].printed == 13.59 * 3600


def test_differences_are_taken_seed_by_seed_within_a_group() -> None:
    experiment = EXPERIMENTS["pieces"]
    records = [
        record
        for cell in experiment.cells
        for record in fake.records([cell], seeds=(0, 1, 2))
        # a seed that one of the two lacks is left out
        if not (cell.tags["piece"] == "no gate" and record["seed"] == 1)
    ]
    found = {
        (m.tags["dataset"], m.tags["decides"], m.tags["piece"]): m.samples
        for m in measure(experiment, Store(records))
    }
    base = found["modelnet10", "head", "default"]
    assert base["paired difference"].n == 0
    gaps = found["modelnet10", "head", "no gate"]["paired difference"].values
    own = found["modelnet10", "head", "no gate"]["accuracy"].values
    assert gaps == pytest.approx(
        [own[0] - base["accuracy"].values[0], own[1] - base["accuracy"].values[2]]
    )


def test_rows_are_averaged_over_the_same_data_sets() -> None:
    experiment = EXPERIMENTS["rounds"]
    lacks = [
        c for c in experiment.cells if (c.tags["method"], c.tags["dataset"]) == ("fedhssl", "adult")
    ]
    records = fake.records([c for c in experiment.cells if c not in lacks])
    assert lacks
    assert all(m.samples["rounds"].n == 3 for m in measure(experiment, Store(records)))
