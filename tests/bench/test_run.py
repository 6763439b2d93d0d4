"""From a configuration to records: the keys the issue promises, bytes by hand, phases, lockstep,
JSON."""

import json
from typing import Any

import pytest
import torch

from protoevfl.bench.run import defences, run
from protoevfl.bench.world import RunConfig, prepare
from protoevfl.errors import UserError
from protoevfl.federation.federation import parties_for, party_key
from protoevfl.method import Report
from protoevfl.observer import Observer
from protoevfl.privacy.policy import PrivacySettings, settings_from
from protoevfl.rows.sources import load
from tests.bench.fields import KEYS, METRICS
from tests.tiny import short

QUICK: dict[str, Any] = short("proto_evfl") | {"layers": ["output"]}
COUNT = "rounds.count"
PROTO = RunConfig(aligned=60, pool=30, overrides=QUICK)


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return run(RunConfig(aligned=60, pool=30, overrides=QUICK | {COUNT: 1}), [3, 1], device="cpu")


def test_a_record_has_every_promised_key(records: list[dict[str, Any]]) -> None:
    for record in records:
        assert set(record) >= KEYS
        assert set(record["metrics"]) >= METRICS
        assert set(record["bytes"]) >= {"up", "down", "by_type"}
        assert set(record["versions"]) >= {"protoevfl", "torch", "python"}
    assert [record["seed"] for record in records] == [3, 1]


def test_a_record_is_plain_json(records: list[dict[str, Any]]) -> None:
    for record in records:
        text = json.dumps(record, allow_nan=False)
        assert json.dumps(json.loads(text)) == text


def test_a_defence_that_was_turned_off_is_recorded_as_off() -> None:
    """Sealed sums have noise unless they are told otherwise."""
    for privacy in (PrivacySettings(), PrivacySettings(sum_noise=0.0, clip=2.0)):
        assert settings_from(defences(privacy)) == privacy
    assert "clip" not in defences(PrivacySettings())


def test_rates_are_fractions(records: list[dict[str, Any]]) -> None:
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "seen_accuracy"):
        assert 0 <= records[0]["metrics"][name] <= 1
    assert len(records[0]["metrics"]["per_class_recall"]) == 10
    assert records[0]["metrics"]["unseen_recall"] is None


def test_bytes_are_those_counted_by_hand(records: list[dict[str, Any]]) -> None:
    """3 passive parties, 60 aligned rows, width 84, 10 classes; round 0 uploads, one round of
    prototypes."""
    up = 3 * 60 * 84 * 4
    learned = 3 * (60 * 84 + 10) * 4
    down = 3 * (8 + (10 * 84 + 10 + 10) * 4)
    for record in records:
        assert record["bytes"]["by_type"] == {
            "Embeddings": {"up": up, "down": 0},
            "Learn": {"up": 0, "down": down},
            "Learned": {"up": learned, "down": 0},
        }
        assert (record["bytes"]["up"], record["bytes"]["down"]) == (up + learned, down)
        assert set(record["bytes"]["by_party"]) == {"1", "2", "3"}
        assert record["rounds"] == 2


def test_time_is_told_by_phase(records: list[dict[str, Any]]) -> None:
    record = records[0]
    assert {"warm-up", "rounds", "head", "predict"} <= set(record["phases"])
    # two seeds share the clock
    assert sum(record["phases"].values()) == pytest.approx(2 * record["seconds"])
    assert record["peak_memory_mb"] > 1


def test_an_observer_hears_the_reports_of_every_seed() -> None:
    seen: list[tuple[int, Report]] = []

    class Ear(Observer):
        def report(self, report: Report, run: int = 0) -> None:
            seen.append((run, report))

    run(PROTO, [0, 1], device="cpu", observer=Ear())
    for index in range(2):
        assert [report.phase for i, report in seen if i == index][-1] == "head"


def test_prediction_bytes_are_not_in_the_training_ledger() -> None:
    record = run(RunConfig(aligned=60, pool=30, overrides=QUICK | {COUNT: 0}), [0], device="cpu")[0]
    assert record["bytes"]["by_type"]["Embeddings"] == {"up": 3 * 60 * 84 * 4, "down": 0}
    assert "Embed" not in record["bytes"]["by_type"]


def test_parties_of_one_seed_have_their_own_keys() -> None:
    world = prepare(PROTO, 5, "cpu")
    keys = {party_key(world.seed, m) for m in range(4)}
    assert len(keys | {world.owner.key}) == 5


def test_both_engines_can_be_asked_for() -> None:
    from protoevfl.federation.engines.in_process import InProcess
    from protoevfl.federation.engines.stacked import Stacked
    from protoevfl.settings.presets import build

    method = build("proto_evfl", overrides=QUICK)
    runs = [prepare(PROTO, 0, "cpu").simulated]
    assert isinstance(parties_for(method, runs, "loop", "cpu"), InProcess)
    assert isinstance(parties_for(method, runs, "stacked", "cpu"), Stacked)


class TestEveryLabel:
    def test_cells_of_older_records_keep_their_identity(self) -> None:
        assert not {"labels", "overlap"} & set(PROTO.identity())
        every = RunConfig(aligned=60, pool=30, labels="all", overlap=5).identity()
        assert (every["labels"], every["overlap"]) == ("all", 5)

    def test_labels_of_shared_rows_only_are_the_default(self) -> None:
        owner = prepare(PROTO, 0, "cpu").owner
        assert owner.own is None
        assert owner.further is None

    def test_own_rows_are_the_shared_ones_then_those_of_the_pool_with_their_labels(self) -> None:
        world = prepare(RunConfig(aligned=60, pool=30, labels="all"), 0, "cpu")
        own, active = world.owner.own, world.tables[0]
        assert own is not None
        assert world.owner.further is None
        assert torch.equal(own.rows, torch.cat([active.aligned, active.pool]))
        assert torch.equal(own.labels[:60], world.owner.labels)
        assert torch.equal(own.labels[60:], world.labels.pools[0])
        assert torch.equal(own.query, active.query)
        assert own.shared_rows == 60

    def test_rows_of_an_overlap_lie_between_the_shared_and_the_other_ones(self) -> None:
        world = prepare(RunConfig(aligned=60, pool=30, labels="all", overlap=7), 0, "cpu")
        own, further = world.owner.own, world.owner.further
        assert own is not None
        assert further is not None
        assert own.shared_rows == 60 + 21
        assert torch.equal(own.labels[60:81], further.labels)
        assert further.shared.sum(0).tolist() == [2] * 21  # the active party and one other
        assert further.shared.sum(1).tolist() == [21, 7, 7, 7]
        for m, table in enumerate(world.tables):
            assert table.further is not None
            rows = world.split.further_of(m)
            assert len(table.further) == len(rows)
            # the same order
            assert torch.equal(load("digits").labels[rows], further.labels[further.shared[m]])
        assert torch.equal(own.rows[60:81], world.tables[0].further)

    @pytest.mark.parametrize(
        ("settings", "line"),
        [
            ({"labels": "every"}, "labels is one of shared, all"),
            ({"overlap": 5}, "of use with --labels all"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, settings: dict[str, Any], line: str) -> None:
        with pytest.raises(UserError, match=line):
            RunConfig(**settings)

    def test_a_record_of_every_label_says_so_and_counts_further_rows(self) -> None:
        cell = RunConfig(
            aligned=60, pool=30, parties=3, labels="all", overlap=5, overrides=QUICK | {COUNT: 0}
        )
        (record,) = run(cell, [0], device="cpu", subsets=True)
        assert (record["labels"], record["overlap"]) == ("all", 5)
        assert record["bytes"]["by_type"]["Embeddings"] == {"up": 2 * (60 + 5) * 84 * 4, "down": 0}
        assert set(record["metrics"]["subsets"]) == {"0", "1", "2", "0+1", "0+2", "1+2", "0+1+2"}
        assert "own model" in record["phases"]


def test_seeds_have_different_splits_and_settings_the_same_pools(
    records: list[dict[str, Any]],
) -> None:
    assert records[0]["split_hash"] != records[1]["split_hash"]
    normal = prepare(PROTO, 0, "cpu")
    zero = prepare(
        RunConfig(aligned=60, pool=30, setting="zero_shot", classes=(3,), overrides=QUICK), 0, "cpu"
    )
    pools = zip(normal.split.pools, zero.split.pools, strict=True)
    assert all(torch.equal(a.sort().values, b.sort().values) for a, b in pools)
    assert 3 not in zero.owner.labels
    assert zero.owner.unseen == (3,)
    assert 3 in zero.labels.query
