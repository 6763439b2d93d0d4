from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Store, measure
from tests.reproduction import fake

MARGINS = EXPERIMENTS["margins"]


def test_each_case_is_compared_by_its_own_metric() -> None:
    records = fake.records(MARGINS.cells)
    for record in records:
        ours = record["method"] == "proto_evfl"
        record["metrics"] |= {"accuracy": 0.5 + 0.1 * ours, "balanced_accuracy": 0.5 + 0.2 * ours, "auc": 0.5}
    gaps = {}
    for item in measure(MARGINS, Store(records)):
        if item.tags["method"] != "proto_evfl":
            gaps.setdefault(item.tags["metric"], set()).add(round(item.mean("paired difference") or 0.0, 6))
    assert gaps == {"accuracy": {-10.0}, "balanced_accuracy": {-20.0}, "auc": {0.0}}


def test_every_case_has_ours_and_others_in_the_same_setting() -> None:
    for metric in {cell.tags["metric"] for cell in MARGINS.cells}:
        cells = [cell for cell in MARGINS.cells if cell.tags["metric"] == metric]
        assert len({(c.config.dataset, c.config.setting, c.config.classes, c.config.aligned) for c in cells}) == 1
        assert [c.config.method for c in cells].count("proto_evfl") == 1
        assert len(cells) > 3
