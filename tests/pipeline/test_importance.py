"""Own columns: the one that decides comes first, noise is worth nothing, nobody else's is named."""

from types import SimpleNamespace
from typing import Any, cast

import torch

from protoevfl.artifacts.owner import TestRows
from protoevfl.artifacts.run_dir import Run
from protoevfl.pipeline.importance import own_columns
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.survey import Number


def reads_the_second_column(rows: TestRows, parties: tuple[int, ...]) -> torch.Tensor:
    """A model whose answer is column 1 of the rows as the party embeds them."""
    sent = rows.embeddings[0]
    return torch.stack([-sent[:, 1], sent[:, 1]], 1).softmax(1)


def test_what_decides_comes_first_and_what_nobody_reads_is_worth_nothing() -> None:
    labels = torch.arange(200) % 2
    own = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    own[:, 1] = labels.float() + 0.1 * own[:, 1]
    encoder = TableEncoder([Number(name, 0.0, 1.0, 0.0, None, False) for name in "abc"], {})
    party = SimpleNamespace(encoder=encoder, embed=lambda batches: batches[0])
    owner = SimpleNamespace(has_own_model=False, subset=reads_the_second_column)
    rows = TestRows({0: own, 1: torch.zeros(200, 1)}, labels, own)
    first, *others = own_columns(cast(Any, owner), cast(Any, party), rows)
    assert first.column == "b"
    assert 0.4 < first.low <= first.joint <= first.high < 0.7  # AUC 1 falls to chance
    assert first.alone is None
    assert [one.joint for one in others] == [0, 0]


def test_columns_are_the_active_partys_own_and_the_same_each_time(run: Run) -> None:
    owner = run.need_owner()
    rows = TestRows(
        {m: f[:60] for m, f in owner.test.embeddings.items()},
        owner.test.labels[:60],
        None if owner.test.own is None else owner.test.own[:60],
    )
    found = own_columns(owner, run.parties["bank"], rows)
    assert {one.column for one in found} == set(run.parties["bank"].encoder.columns)
    assert [one.joint for one in found] == sorted((one.joint for one in found), reverse=True)
    assert all(one.alone is not None for one in found)
    assert own_columns(owner, run.parties["bank"], rows) == found


def test_rows_that_are_not_at_hand_or_of_one_class_give_nothing(run: Run) -> None:
    owner = run.need_owner()
    party = run.parties["bank"]
    nothing = TestRows(owner.test.embeddings, owner.test.labels)
    assert own_columns(owner, party, nothing) == []
    same = TestRows(owner.test.embeddings, torch.zeros_like(owner.test.labels), owner.test.own)
    assert own_columns(owner, party, same) == []
