"""The files of all parties in one process: what `protoevfl align` left is used."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.pipeline.one_process import prepare
from protoevfl.pipeline.simulate import align_files
from tests.pipeline.example import small_example


def test_the_kept_alignment_is_used_and_checked_against_the_files(tmp_path: Path) -> None:
    pytest.importorskip("private_set_intersection")
    config = small_example(tmp_path, rows=400)
    plain = prepare(config)
    found = align_files(config)
    world = prepare(config)
    assert world.parties[0].alignment is None  # the active party has one per pair
    for party, before in zip(world.parties[1:], plain.parties[1:], strict=True):
        assert party.alignment is not None
        assert before.alignment is not None
        assert party.alignment.digest == found[party.name]["bank"].digest != before.alignment.digest
    # another common order, the same rows in training
    assert torch.equal(world.labels, plain.labels)
    for one, other in zip(world.parties, plain.parties, strict=True):
        for rows in ("pool", "aligned", "query", "further"):
            assert torch.equal(getattr(one.table, rows), getattr(other.table, rows))
    table = pq.read_table(config.party("bank").file)
    pq.write_table(table.slice(1), config.party("bank").file)
    with pytest.raises(UserError, match="align again"):
        prepare(config)
