"""What the owner keeps of answers, and what it refuses to begin."""

from typing import Any

import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.federation.owner import Further
from protoevfl.messages import Embeddings, SendFeatures, WarmUp
from protoevfl.methods import training
from tests.tiny import labels, owner, quick

FURTHER = 5


def with_further_rows() -> Any:
    """Party 1 has the first three of the further rows, party 0 all of them."""
    who = owner()
    shared = torch.tensor([[True] * FURTHER, [True] * 3 + [False] * 2])
    who.further = Further(labels(1, FURTHER), shared)
    return who


def test_further_rows_lie_where_they_belong_and_are_zero_where_nobody_has_them() -> None:
    sent = torch.randn(3, 2)
    blocks = training.further_blocks(with_further_rows(), {1: Embeddings(sent)}, 4)
    assert blocks.shape == (2, FURTHER, 4)
    assert torch.equal(blocks[1, :3, :2], sent)
    assert not blocks[1, 3:].any()
    assert not blocks[:, :, 2:].any(), "narrower answers are followed by zeros"
    assert not blocks[0].any(), "a party that did not answer"


def test_where_every_class_has_labels_nobody_describes_its_pool() -> None:
    who = owner()
    method: Any = quick("proto_evfl")
    talk = training.described(method.unseen, who, torch.zeros(2, 12, 4), torch.zeros(2, 3, 4))
    with pytest.raises(StopIteration) as stop:
        next(talk)
    assert stop.value.value == []


def test_the_first_question_is_to_warm_up_and_goes_to_everybody() -> None:
    method: Any = quick("proto_evfl")
    assert next(method.train(owner())) == {0: WarmUp(), 1: WarmUp()}
    assert SendFeatures() not in next(method.train(owner(parties=3))).values()


def test_sealed_refuses_a_class_without_labels_before_anything_is_asked() -> None:
    who = owner()
    who.unseen = (2,)
    method: Any = quick("proto_evfl", columns="sealed")
    with pytest.raises(UserError, match="a class without any label"):
        next(method.train(who))
