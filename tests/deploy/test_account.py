"""Which rows a reply is made of: every type that can leave is entered, new types as all rows."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from protoevfl.deploy.account import Account
from protoevfl.messages import (
    Describe,
    Done,
    Embed,
    Embeddings,
    ForwardBatch,
    ForwardMixed,
    Learn,
    Learned,
    Message,
    MixedEmbeddings,
    Parameters,
    Prepare,
    SendFeatures,
    Statistics,
    WarmUp,
)

PARTS = {
    "aligned": np.array([1, 2, 3]),
    "further": np.array([4]),
    "query": np.array([5, 6]),
    "pool": np.array([7, 8, 9]),
}
VALUES = Embeddings(torch.zeros(3, 2))
LEARN = Learn(0, torch.zeros(2, 2), torch.ones(2), torch.ones(2))
NUMBERS = torch.zeros(1, 1)


@dataclass
class Book:
    entries: list[tuple[list[int], str, str, str]] = field(default_factory=list)

    def left(self, rows: Any, form: str, run: str, name: str) -> None:
        self.entries.append((rows.tolist(), form, run, name))


@pytest.mark.parametrize(
    ("request_", "reply", "features", "rows", "form"),
    [
        (WarmUp(), VALUES, False, [1, 2, 3], "embedding"),
        (LEARN, Learned(torch.zeros(3, 2), torch.ones(2)), False, [1, 2, 3], "embedding"),
        (SendFeatures(), VALUES, True, [1, 2, 3], "features"),
        (Embed("query"), VALUES, True, [5, 6], "features"),
        (Embed("further"), VALUES, False, [4], "embedding"),
        (
            Describe(1),
            Statistics(NUMBERS[None], NUMBERS[None], NUMBERS, NUMBERS[0]),
            False,
            [7, 8, 9],
            "statistics",
        ),
        (ForwardBatch(0, torch.tensor([2, 0, 2])), VALUES, False, [1, 3], "embedding"),
        (
            ForwardMixed(0, 2, torch.tensor([0])),
            MixedEmbeddings(NUMBERS, NUMBERS),
            False,
            list(range(1, 10)),
            "embedding",
        ),
        (Prepare(), Parameters(torch.zeros(2)), False, list(range(1, 10)), "parameters"),
        # a type without a line of its own is on the safe side
        (Prepare(), LEARN, False, list(range(1, 10)), "other"),
    ],
)
def test_every_reply_is_entered(
    request_: Message, reply: Message, features: bool, rows: list[int], form: str
) -> None:
    book = Book()
    Account(book, "r", PARTS).enter(request_, reply, "round 1", features)  # type: ignore[arg-type]
    assert book.entries == [(rows, form, "r", "round 1")]


def test_an_acknowledgement_has_nothing_of_rows() -> None:
    book = Book()
    Account(book, "r", PARTS).enter(Prepare(), Done(), "round 1")  # type: ignore[arg-type]
    assert book.entries == []
