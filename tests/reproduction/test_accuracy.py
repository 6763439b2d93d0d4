"""The experiments on accuracy hold the paper's cells: all data sets, all class sets, all numbers of
parties."""

import pytest

from protoevfl.bench.world import RunConfig, prepare
from protoevfl.reproduction import accuracy
from protoevfl.reproduction.grid import ALIGNED, IMAGES, TABLES
from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.spec import Experiment
from tests.reproduction import fake


def places(experiment: Experiment, **tags: str) -> list[dict[str, str]]:
    return [
        dict(c.tags) for c in experiment.cells if all(c.tags.get(k) == v for k, v in tags.items())
    ]


@pytest.mark.parametrize(
    "method", ["proto_evfl", "proto_evfl one_way", "proto_evfl paper", "vanilla", "fedhssl"]
)
def test_every_method_has_a_cell_for_each_number_of_rows(method: str) -> None:
    for experiment, datasets in (
        (accuracy.ACCURACY_IMAGES, IMAGES),
        (accuracy.ACCURACY_TABLES, TABLES),
    ):
        for dataset in datasets:
            found = {
                p["aligned"]
                for p in places(experiment, dataset=dataset, method=method, setting="normal")
            }
            assert found == set(map(str, ALIGNED))


def test_twenty_class_sets_each_unseen_and_rare_for_both_methods() -> None:
    assert len(accuracy.CLASS_SETS) == 20
    for names in accuracy.CLASS_SETS:
        found = {(p["setting"], p["method"]) for p in places(accuracy.RARE_CLASSES, classes=names)}
        assert len(found) == 4
    for c in accuracy.RARE_CLASSES.cells:
        assert " ".join(map(str, c.config.classes)) == c.tags["classes"]


def test_six_and_eight_parties_on_both_image_sets() -> None:
    for dataset in IMAGES:
        assert {p["parties"] for p in places(accuracy.PARTIES, dataset=dataset)} >= {"6", "8"}
    assert all(c.config.parties == int(c.tags["parties"]) for c in accuracy.PARTIES.cells)


def test_imbalance_needs_no_training_and_names_every_party() -> None:
    for dataset in (*IMAGES, *TABLES):
        assert {p["party"] for p in places(accuracy.IMBALANCE, dataset=dataset)} == {
            "1",
            "2",
            "3",
            "4",
        }


def test_each_case_is_compared_by_its_own_metric() -> None:
    records = fake.records(accuracy.MARGINS.cells)
    for record in records:
        ours = record["method"] == "proto_evfl"
        record["metrics"] |= {
            "accuracy": 0.5 + 0.1 * ours,
            "balanced_accuracy": 0.5 + 0.2 * ours,
            "auc": 0.5,
        }
    gaps = {}
    for item in measure(accuracy.MARGINS, Store(records)):
        if item.tags["method"] != "proto_evfl":
            gaps.setdefault(item.tags["metric"], set()).add(
                round(item.mean("paired difference") or 0.0, 6)
            )
    assert gaps == {"accuracy": {-10.0}, "balanced_accuracy": {-20.0}, "auc": {0.0}}


def test_every_case_has_ours_and_others_in_the_same_setting() -> None:
    for metric in {cell.tags["metric"] for cell in accuracy.MARGINS.cells}:
        cells = [cell for cell in accuracy.MARGINS.cells if cell.tags["metric"] == metric]
        assert (
            len(
                {
                    (c.config.dataset, c.config.setting, c.config.classes, c.config.aligned)
                    for c in cells
                }
            )
            == 1
        )
        assert [c.config.method for c in cells].count("proto_evfl") == 1
        assert len(cells) > 3


def test_the_split_of_a_record_is_the_one_every_method_of_that_seed_sees() -> None:
    config = RunConfig(dataset="digits", aligned=100, pool=100)
    first, second = accuracy.split_records(config, [0, 1])
    assert first["split_hash"] == prepare(config, 0, "cpu").split.hash != second["split_hash"]
    assert (first["seed"], second["seed"], first["metrics"]) == (0, 1, {})
    assert len(first["split"]["mid"]) == config.parties
