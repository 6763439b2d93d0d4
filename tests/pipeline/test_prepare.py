"""From files to tables: who is kept aside, what happens to rows without a label, limits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.pipeline import prepare as own_prepare
from protoevfl.pipeline.one_process import prepare
from protoevfl.pipeline.prepare import split_rows
from protoevfl.settings.config import Config
from tests.pipeline.example import small_example

LABELS = np.array([0] * 50 + [1] * 30 + [-1] * 20)
IDS = [f"id{i}" for i in range(100)]


def test_shares_hold_class_by_class_and_nobody_is_in_two_parts() -> None:
    parts = split_rows(LABELS, IDS, seed=0, test=0.2, validation=0.25)
    assert np.bincount(LABELS[parts.test]).tolist() == [10, 6]
    assert np.bincount(LABELS[parts.validation]).tolist() == [10, 6]
    every = np.concatenate([parts.train, parts.validation, parts.test, parts.unlabelled])
    assert sorted(every.tolist()) == list(range(100))
    assert parts.unlabelled.tolist() == list(range(80, 100))


def test_the_same_people_are_kept_aside_in_any_order_and_others_with_another_seed() -> None:
    order = np.random.default_rng(0).permutation(100)
    first = split_rows(LABELS, IDS, 0, 0.2, 0.0)
    second = split_rows(LABELS[order], [IDS[i] for i in order], 0, 0.2, 0.0)
    assert [IDS[i] for i in first.test] == [IDS[order[i]] for i in second.test]
    assert [IDS[i] for i in first.train] == [IDS[order[i]] for i in second.train]
    assert set(split_rows(LABELS, IDS, 1, 0.2, 0.0).test) != set(first.test)


def test_a_single_row_of_a_class_is_trained_on() -> None:
    labels = np.array([0] * 50 + [1])
    assert 50 in split_rows(labels, IDS[:51], 0, 0.5, 0.0).train


def test_tables_hold_every_row_once_and_the_label_party_comes_first(config: Config) -> None:
    world = prepare(replace(config, label=replace(config.label)))
    bank = world.parties[0]
    assert [p.name for p in world.parties] == ["bank", "insurer", "telco"]
    for party in world.parties:
        table = party.table
        assert table.further is not None
        parts = (table.pool, table.aligned, table.query, table.further)
        assert sum(map(len, parts)) == party.facts["rows"]
        assert len(table.aligned) == len(world.labels)
        assert len(table.query) == len(world.test_labels)
        assert table.spans is not None
        assert table.spans[-1][1] == table.shape[0]
    assert bank.facts["columns"] == ["income", "age", "branch", "customer_since", "overdraft"]
    assert world.unseen == ()


def with_labels(config: Config, change: dict[str, object]) -> Config:
    """The example with the bank's label column changed."""
    path = config.party("bank").file
    table = pq.read_table(path)
    labels = [change.get(v, v) if i % 2 else v for i, v in enumerate(table["default"].to_pylist())]
    place = table.schema.get_field_index("default")
    pq.write_table(table.set_column(place, "default", pa.array(labels, pa.string())), path)
    return config


def test_common_rows_without_a_label_join_the_pools_with_a_note(tmp_path: Path) -> None:
    config = small_example(tmp_path)
    before = prepare(config)
    after = prepare(with_labels(config, {"no": None}))
    assert len(after.labels) + len(after.test_labels) + 100 < len(before.labels) + len(
        before.test_labels
    )
    assert any("used as unlabelled rows" in note for note in after.notes)
    for party in after.parties:
        table = party.table
        assert table.further is not None
        assert (
            sum(map(len, (table.pool, table.aligned, table.query, table.further)))
            == party.facts["rows"]
        )


def test_a_listed_class_without_rows_is_unseen_and_an_unlisted_one_refused(tmp_path: Path) -> None:
    config = small_example(tmp_path)
    world = prepare(replace(config, label=replace(config.label, classes=("no", "perhaps", "yes"))))
    assert world.classes == ("no", "perhaps", "yes")
    assert world.unseen == (1,)
    assert any("perhaps" in note for note in world.notes)


def test_labels_at_no_common_row_are_refused(tmp_path: Path) -> None:
    config = small_example(tmp_path)
    path = config.party("insurer").file
    bank = pq.read_table(config.party("bank").file)
    place = bank.schema.get_field_index("default")
    shared = set(path.read_text().replace('"', "").replace("\n", ",").split(","))
    labels = [
        None if str(i) in shared else v
        for i, v in zip(bank["customer_id"].to_pylist(), bank["default"].to_pylist())
    ]
    pq.write_table(
        bank.set_column(place, "default", pa.array(labels, pa.string())), config.party("bank").file
    )
    with pytest.raises(UserError, match="no row that all parties share has a label"):
        prepare(config)


def test_pools_are_limited_by_rows_and_by_memory(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = prepare(replace(config, pool=50))
    assert [len(p.table.pool) for p in limited.parties] == [50] * 3
    assert sum("drawn at random" in note for note in limited.notes) == 3
    monkeypatch.setattr(own_prepare, "CELLS", 80)
    assert len(prepare(config).parties[0].table.pool) == 80 // limited.parties[0].table.shape[0]


def test_a_party_without_unaligned_rows_learns_from_the_common_ones(config: Config) -> None:
    world = prepare(replace(config, pool=0))
    assert all(torch.equal(p.table.pool, p.table.aligned) for p in world.parties)
    assert any("no rows of its own" in note for note in world.notes)
