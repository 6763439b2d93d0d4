"""What a party holds: its own views of the right rows, finite, with the labels apart."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.rows import sources
from protoevfl.rows.dataset import Dataset
from protoevfl.rows.splits import SplitSpec, labels_of, party_tables, split_dataset
from protoevfl.rows.table import Labels, PartyTable

from .real import requires

ROW = torch.zeros(2, 3)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return sources.load("digits")


def test_images_stay_bytes_and_hold_the_partys_views(digits: Dataset) -> None:
    split = split_dataset(digits, SplitSpec(aligned=100), 0)
    tables = party_tables(digits, split)
    assert isinstance(digits.features, torch.Tensor)
    for table, pool, views in zip(
        tables, split.pools, [(0, 1), (2, 3), (0, 2), (1, 3)], strict=True
    ):
        assert table.shape == (2, 4, 4)
        assert table.pool.dtype == torch.uint8
        assert table.spans is None
        for channel, view in enumerate(views):
            assert torch.equal(table.pool[:, channel], digits.features[pool, view])
            assert torch.equal(table.aligned[:, channel], digits.features[split.aligned, view])
            assert torch.equal(table.query[:, channel], digits.features[digits.test, view])


def test_labels_follow_the_rows(digits: Dataset) -> None:
    split = split_dataset(digits, SplitSpec(aligned=100, setting="zero_shot", classes=(3,)), 0)
    labels = labels_of(digits, split)
    assert labels.unseen == (3,)
    assert not (labels.aligned == 3).any()
    assert (labels.query == 3).any()
    assert all((pool == 3).any() for pool in labels.pools)
    assert torch.equal(labels.aligned, digits.labels[split.aligned])
    assert labels.classes == 10


@requires("credit")
def test_table_scalers_never_see_test_rows_or_other_pools() -> None:
    credit = sources.load("credit")
    split = split_dataset(credit, SplitSpec(), 0)
    tables = party_tables(credit, split)
    own = np.zeros(30_000, np.bool_)
    own[torch.cat([split.pools[0], split.aligned]).numpy()] = True
    spoiled = {}
    for name in credit.features.column_names:
        column = credit.features[name].combine_chunks()
        other = pa.scalar("9" if pa.types.is_string(column.type) else -1e9, column.type)
        spoiled[name] = pc.if_else(pa.array(own), column, other)
    again = party_tables(replace(credit, features=pa.table(spoiled)), split)[0]
    assert torch.equal(tables[0].pool, again.pool)
    assert torch.equal(tables[0].aligned, again.aligned)
    for table in tables:
        assert table.spans is not None
        assert table.spans[-1][1] == table.shape[0]
        assert table.pool.dtype == torch.float32


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(UserError, match="bank: its aligned rows hold a value that is not finite"):
        PartyTable("bank", ROW, ROW + value, ROW)


def test_parts_with_other_columns_are_refused() -> None:
    with pytest.raises(UserError, match="same columns"):
        PartyTable("bank", ROW, ROW[:, :2], ROW)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_outside_the_classes_are_refused(label: int) -> None:
    with pytest.raises(UserError, match=r"0\.\.2"):
        Labels(3, torch.tensor([0, label]), torch.tensor([0]))


def test_a_label_of_an_unseen_class_is_refused() -> None:
    with pytest.raises(UserError, match="declared unseen"):
        Labels(3, torch.tensor([0, 1]), torch.tensor([0]), unseen=(1,))
