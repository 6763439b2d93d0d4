"""The summary in words: it names numbers of the records and compares like with like."""

from protoevfl.bench.world import RunConfig
from protoevfl.reproduction.pages import summary
from protoevfl.reproduction.pages.page import _grouped
from tests.reproduction import fake


def test_summary_names_the_best_method_and_its_number() -> None:
    records = [
        fake.record(RunConfig(dataset="mine", method=m), s)
        for m in ("vanilla", "local")
        for s in (0, 1)
    ]
    expected = sum(r["metrics"]["accuracy"] for r in records[:2]) / 2
    line = summary._leaders(_grouped(records))[0]
    assert f"vanilla reaches {100 * expected:.1f} ±" in line
    assert "next is local" in line
    assert any("fewer than three seeds" in w for w in summary.warnings(_grouped(records)))


def test_the_summary_compares_like_with_like() -> None:
    """Neither more parties nor changed settings win a sentence that does not say so."""
    usual = [fake.record(RunConfig(dataset="mine", method=m), 0) for m in ("vanilla", "local")]
    more = fake.record(RunConfig(dataset="mine", method="proto_evfl", parties=6), 0)
    more["metrics"]["accuracy"] = 0.999
    assert "proto_evfl" not in summary._leaders(_grouped([*usual, more]))[0]
    zero = {"dataset": "mine", "method": "proto_evfl", "setting": "zero_shot", "classes": (3,)}
    on, off = (fake.record(RunConfig(**zero, overrides=o), 0) for o in ({}, {"unseen.slot": False}))
    on["metrics"]["unseen_recall"], off["metrics"]["unseen_recall"] = 0.8, 0.0
    assert summary._unseen(_grouped([on, off])) == [
        "Recall of classes without a single label, mean over cells: proto_evfl 80.0 % (1 cell)."
    ]


def test_without_records_it_says_so() -> None:
    assert summary.summary([]) == ["There are no records."]


def test_other_devices_and_shared_ones_are_warned_of() -> None:
    records = [fake.record(RunConfig(dataset="mine"), s) for s in range(3)]
    assert summary.warnings(_grouped(records)) == []
    records[0]["device"], records[1]["workers"] = "a GPU", 4
    found = " ".join(summary.warnings(_grouped(records)))
    assert "do not compare seconds" in found
    assert "shared their device" in found
