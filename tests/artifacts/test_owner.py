"""The label owner as a run keeps it: it predicts from whichever embeddings there are."""

from pathlib import Path

import pytest
import torch

from protoevfl.artifacts.owner import StoredOwner, among
from protoevfl.artifacts.run_dir import Run
from protoevfl.errors import UserError


def test_what_was_saved_is_what_is_loaded(run: Run, tmp_path: Path) -> None:
    owner = run.need_owner()
    owner.save(tmp_path / "owner")
    again = StoredOwner.load(tmp_path / "owner")
    for name in (
        "parties",
        "classes",
        "label_column",
        "method",
        "privacy",
        "metrics",
        "unseen",
        "rare",
        "key",
    ):
        assert getattr(again, name) == getattr(owner, name)
    assert torch.equal(again.labels, owner.labels)
    assert torch.equal(again.subset(again.test, (0, 2)), owner.subset(owner.test, (0, 2)))


def test_a_subset_is_all_rows_with_these_parties(run: Run) -> None:
    owner = run.need_owner()
    rows = owner.test
    here = torch.tensor([[True], [False], [True]]).expand(-1, len(rows.labels))
    assert torch.equal(
        owner.subset(rows, (0, 2)), owner.probabilities(rows.embeddings, here, rows.own)
    )


def test_a_party_that_is_not_there_need_not_send(run: Run) -> None:
    owner = run.need_owner()
    rows = owner.test
    here = torch.tensor([[True], [True], [False]]).expand(-1, len(rows.labels))
    two = {m: f for m, f in rows.embeddings.items() if m < 2}
    assert torch.equal(owner.probabilities(two, here, rows.own), owner.subset(rows, (0, 1)))


def test_the_own_model_needs_its_rows(run: Run) -> None:
    rows = run.need_owner().test
    here = torch.ones(3, len(rows.labels), dtype=torch.bool)
    with pytest.raises(UserError, match="own model of bank needs its encoded rows"):
        run.need_owner().probabilities(rows.embeddings, here)


def test_predicting_does_not_change_the_owner(run: Run) -> None:
    owner = run.need_owner()
    before = {name: t.clone() for name, t in owner.memory.items()}
    first = owner.subset(owner.test, (0, 1, 2))
    assert torch.equal(first, owner.subset(owner.test, (0, 1, 2)))
    assert before.keys() == owner.memory.keys()
    assert all(torch.equal(before[name], t) for name, t in owner.memory.items())


def test_examples_are_found_by_their_place_among_the_rows() -> None:
    rows = torch.tensor([8, 3, 5])
    assert among(rows, {0: 5, 1: 8, 2: 4}) == {0: 2, 1: 0}
    assert among(rows, {}) == {}
