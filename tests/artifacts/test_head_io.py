"""A head that is taken apart and put together again predicts the same."""

import dataclasses

import pytest
import torch
from torch import nn

from protoevfl.artifacts import head_io
from protoevfl.errors import UserError
from protoevfl.head import HeadNet, HeadSettings, ThreeHeads, probabilities

PARTIES, WIDTH, CLASSES = 3, 6, 4


def stir(head: nn.Module) -> nn.Module:
    """Every parameter gets values of its own."""
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in head.parameters():
            p.copy_(torch.randn(p.shape, generator=source))
    return head


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("adaptor", [True, False])
@pytest.mark.parametrize("hidden", [8, 0])
def test_head_nets_come_back(gate: bool, adaptor: bool, hidden: int) -> None:
    settings = HeadSettings(hidden=hidden, gate=gate, adaptor=adaptor)
    head = stir(HeadNet(torch.tensor([5, 9]), PARTIES, WIDTH, CLASSES, settings))
    facts, tensors = head_io.pack(head)
    again = head_io.unpack(facts, tensors)
    f = torch.randn(PARTIES, 7, WIDTH)
    here = torch.tensor([True, False, True])
    assert isinstance(head, HeadNet)
    assert isinstance(again, HeadNet)
    assert torch.equal(probabilities(again, f, here), probabilities(head, f, here))


def test_three_heads_come_back() -> None:
    head = stir(
        ThreeHeads(torch.tensor([5, 9]), 2, WIDTH, CLASSES, HeadSettings(gate=False, adaptor=False))
    )
    again = head_io.unpack(*head_io.pack(head))
    a, b = torch.randn(2, 2, 2, 5, WIDTH)
    assert torch.equal(again(a, b), head(a, b))


def test_facts_are_plain_json_of_known_settings() -> None:
    facts, _ = head_io.pack(HeadNet(torch.tensor([5]), PARTIES, WIDTH, CLASSES, HeadSettings()))
    assert set(facts["settings"]) == {f.name for f in dataclasses.fields(HeadSettings)}
    assert (facts["parties"], facts["width"], facts["classes"], facts["members"]) == (
        PARTIES,
        WIDTH,
        CLASSES,
        1,
    )


def test_other_heads_and_wrong_tensors_are_refused() -> None:
    with pytest.raises(UserError, match="no head that can be kept"):
        head_io.pack(nn.Linear(2, 2))
    assert head_io.unpack(*head_io.pack(None)) is None  # the joint model of tables has none
    facts, tensors = head_io.pack(
        HeadNet(torch.tensor([5]), PARTIES, WIDTH, CLASSES, HeadSettings())
    )
    with pytest.raises(UserError, match="does not fit"):
        head_io.unpack({**facts, "classes": 5}, tensors)
    with pytest.raises(UserError, match="not known"):
        head_io.unpack({**facts, "kind": "Pickle"}, tensors)
