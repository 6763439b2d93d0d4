from protoevfl.methods import EVERY_LABEL
from protoevfl.reproduction.every_label import LABELS, OVERLAP, OVERLAPS, SHARED_ROWS_ONLY


def test_all_labels_are_given_to_every_method_that_can_use_them() -> None:
    for cell in LABELS.cells:
        assert cell.config.labels == ("shared" if cell.config.method in SHARED_ROWS_ONLY else "all")
        assert cell.config.aligned == 200
    assert {c.config.method for c in LABELS.cells if c.config.labels == "all"} == set(EVERY_LABEL)
    tables = {c.config.dataset for c in LABELS.cells if c.config.method in SHARED_ROWS_ONLY}
    assert tables == {"adult", "credit"}


def test_overlaps_are_those_of_the_data_set() -> None:
    assert all(c.config.overlap == OVERLAP[c.config.dataset] for c in OVERLAPS.cells)
    assert all(0 < c.config.overlap * 3 <= (c.config.pool or 0) for c in OVERLAPS.quick)
