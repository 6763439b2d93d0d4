"""The label owner checks its labels, draws its own keys and holds out rows class by class."""

import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner


def owner(labels: list[int], classes: int = 3, key: int = 5) -> LabelOwner:
    return LabelOwner(torch.tensor(labels, dtype=torch.int64), classes, (0, 1), key)


@pytest.mark.parametrize(
    ("labels", "line"), [([], "no aligned"), ([0, 3], "0..2, found 0..3"), ([-1, 2], "found -1")]
)
def test_bad_labels_are_refused(labels: list[int], line: str) -> None:
    with pytest.raises(UserError, match=line):
        owner(labels)


def test_keys_depend_on_owner_purpose_and_number() -> None:
    mine = owner([0, 1])
    assert torch.equal(mine.keys("head", 3)[:2], mine.keys("head", 2))
    everything = torch.cat(
        [mine.keys("head", 3), mine.keys("holdout", 3), owner([0, 1], key=6).keys("head", 3)]
    )
    assert len(set(everything.tolist())) == 9


def test_holdout_divides_the_rows_class_by_class() -> None:
    labels = [0] * 20 + [1] * 9 + [2]
    train, held = owner(labels).holdout(0.2)
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(30))
    counts = torch.tensor(labels)[held].bincount(minlength=3)
    # the share of each class, rounded down: a single row stays in training
    assert counts.tolist() == [4, 1, 0]


def test_holdout_is_random_but_the_same_each_time() -> None:
    labels = [0] * 50
    first = owner(labels).holdout(0.3)[1]
    assert torch.equal(first, owner(labels).holdout(0.3)[1])
    assert not torch.equal(first, owner(labels, key=6).holdout(0.3)[1])
    assert not torch.equal(first, torch.arange(15))


@pytest.mark.parametrize(("fraction", "rows"), [(0.0, 0), (1.0, 30)])
def test_holdout_of_nothing_and_everything(fraction: float, rows: int) -> None:
    train, held = owner([0, 1, 2] * 10).holdout(fraction)
    assert (len(train), len(held)) == (30 - rows, rows)
