"""What parties send of new rows: each one's place, who has which row, the own rows of the first."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.estimator import new_rows
from protoevfl.estimator.new_rows import embed


def model(has_own_model: bool = True) -> Any:
    """Two parties that send the sum of a row."""

    def party(index: int) -> Any:
        return SimpleNamespace(
            index=index, encoder=None, embed=lambda rows, device: rows[0].sum(1, keepdim=True)
        )

    return SimpleNamespace(
        parties_={"bank": party(0), "shop": party(1)},
        owner_=SimpleNamespace(has_own_model=has_own_model),
        device="cpu",
    )


@pytest.fixture(autouse=True)
def rows_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_rows, "encode", lambda encoder, table, name: torch.from_numpy(table))


def test_each_party_has_its_place() -> None:
    ones = np.ones((3, 2))
    sent = embed(model(), {"shop": ones, "bank": 2 * ones}, {"shop": [True, False, True]})
    assert sent.embeddings[0].flatten().tolist() == [4, 4, 4]
    assert sent.embeddings[1].flatten().tolist() == [2, 2, 2]
    assert sent.present.tolist() == [[True] * 3, [True, False, True]]
    assert sent.own is not None
    assert sent.own.tolist() == (2 * ones).tolist()


def test_own_rows_are_for_the_own_model_only() -> None:
    assert embed(model(False), {"bank": np.ones((1, 1))}, {}).own is None
    alone = embed(model(), {"shop": np.ones((1, 1))}, {})
    assert alone.own is None
    assert alone.present.tolist() == [[False], [True]]


def test_a_stranger_is_refused() -> None:
    with pytest.raises(UserError, match="'gym' is not a party of this model; it has bank, shop"):
        embed(model(), {"gym": np.ones((1, 1))}, {})
