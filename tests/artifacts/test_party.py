"""A party as a run keeps it: it embeds its own rows as it did in training, and a damaged folder
says so."""

from pathlib import Path

import pytest
import torch

from protoevfl.artifacts.party import StoredParty
from protoevfl.artifacts.run_dir import Run
from protoevfl.errors import UserError
from protoevfl.messages import Embed, values
from protoevfl.rows.encoders import row_shape


@pytest.fixture
def party(run: Run) -> StoredParty:
    return StoredParty.load(run.path / "insurer")


@pytest.fixture
def rows(party: StoredParty) -> torch.Tensor:
    return torch.randn(30, *row_shape(party.encoder), generator=torch.Generator().manual_seed(0))


def test_what_was_saved_embeds_alike(
    party: StoredParty, rows: torch.Tensor, tmp_path: Path
) -> None:
    party.save(tmp_path / "copy")
    again = StoredParty.load(tmp_path / "copy")
    assert torch.equal(party.embed([rows]), again.embed([rows]))
    assert (again.name, again.index, again.id_columns) == (
        party.name,
        party.index,
        party.id_columns,
    )


def test_no_optimiser_is_stored(party: StoredParty, tmp_path: Path) -> None:
    changed = StoredParty(
        **{**vars(party), "state": {**party.state, "optimizer.step": torch.zeros(1)}}
    )
    changed.save(tmp_path / "copy")
    assert "optimizer.step" not in StoredParty.load(tmp_path / "copy").state


def test_batches_do_not_matter_and_no_rows_give_none(
    party: StoredParty, rows: torch.Tensor
) -> None:
    whole = party.embed([rows])
    torch.testing.assert_close(party.embed([rows[:7], rows[7:]]), whole)
    assert party.embed([]).shape == (0, whole.shape[1])


def test_the_stored_network_is_the_one_that_answers(party: StoredParty, rows: torch.Tensor) -> None:
    bare = party.party()
    bare.rows.query = rows[None]
    torch.testing.assert_close(values(bare.handle(Embed("query"))), party.embed([rows]))


def test_a_changed_file_is_refused(party: StoredParty, tmp_path: Path) -> None:
    party.save(tmp_path / "copy")
    file = tmp_path / "copy" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(UserError):
        StoredParty.load(tmp_path / "copy")
