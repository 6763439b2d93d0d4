"""Bytes by message type: means over runs, and a picture of each method's longest run."""

from protoevfl.bench.run import RunConfig
from protoevfl.reproduction.pages import traffic
from protoevfl.reproduction.spec import Cell
from tests.reproduction import fake


def test_a_type_that_a_run_lacks_counts_as_nothing_there() -> None:
    runs = [
        {"bytes": {"by_type": {"Embeddings": {"up": 10, "down": 2}}}},
        {"bytes": {"by_type": {}}},
        {},
        {},
    ]
    assert traffic.by_type(runs) == {"Embeddings": (2.5, 0.5)}
    assert traffic.by_type([]) == {}


def test_every_type_is_named_and_the_longest_run_is_shown() -> None:
    pairs = []
    for n in (2, 10, 5):
        config = RunConfig(dataset="mine", method="vanilla", overrides={"epochs": n})
        pairs.append(
            (
                Cell({"dataset": "mine", "method": "vanilla", "length": str(n)}, config),
                [fake.record(config, 0)],
            )
        )
    (picture,) = traffic.messages(pairs)
    (ax,) = picture.figure.axes
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {"Embeddings", "BackwardBatch"}
    drawn = {float(x) for points in ax.collections for x, _ in points.get_offsets().filled(0.0)} - {
        0.0
    }
    assert drawn == {float(sum(way)) for way in traffic.by_type(pairs[1][1]).values()}


def test_records_without_bytes_are_no_picture() -> None:
    assert traffic.messages([]) == []
    assert (
        traffic.messages(
            [(Cell({"dataset": "mine", "method": "vanilla"}, RunConfig()), [{"seed": 0}])]
        )
        == []
    )
