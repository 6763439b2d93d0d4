"""What a party answers: which rows and layers, in which units, and nothing to a question that its
level does not know."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.federation.party import Party
from protoevfl.messages import (
    Embed,
    Embeddings,
    Learn,
    Message,
    MessageError,
    SendFeatures,
    WarmUp,
    values,
)
from protoevfl.methods import answers
from protoevfl.methods.proto_evfl import ProtoEVFL
from tests.tiny import ALIGNED, CLASSES, QUERY, column_table, image_table, quick

LAYERS = ["output", "hidden"]


def party(table: Any, **settings: Any) -> Party:
    return Party(quick("proto_evfl", **settings), table, 7)


def learn(width: int) -> Learn:
    mu = torch.nn.functional.normalize(torch.randn(CLASSES, width), dim=1)
    return Learn(0, mu, torch.ones(CLASSES), torch.full((CLASSES,), 1 / CLASSES))


def test_features_are_of_the_shared_rows_in_their_order() -> None:
    table = column_table()
    one = party(table)
    sent = values(one.handle(SendFeatures()))
    assert len(sent) == ALIGNED
    turned = values(party(replace(table, aligned=table.aligned.flip(0))).handle(SendFeatures()))
    torch.testing.assert_close(turned, sent.flip(0), atol=1e-4, rtol=1e-4)


def test_pictures_are_never_sent_as_features() -> None:
    with pytest.raises(UserError, match="these rows are images"):
        party(image_table()).handle(SendFeatures())


def test_layers_side_by_side_are_in_units_of_the_own_pool() -> None:
    one = party(image_table(pool=200), layers=LAYERS, rounds__count=0)
    one.handle(WarmUp())
    pool = answers.embeddings(one.method, one, one.rows.pool)  # type: ignore[arg-type]
    torch.testing.assert_close(pool.mean(1), torch.zeros_like(pool[:, 0]), atol=1e-3, rtol=0)
    assert float(pool.std(1).max()) < 1.01
    assert len(values(one.handle(Embed("query")))) == QUERY


def test_units_are_those_of_the_network_of_now() -> None:
    """After a round they are measured again."""
    one = party(image_table(), layers=LAYERS)
    one.handle(WarmUp())
    before = values(one.handle(Embed("aligned")))
    assert "mean" in one.memory
    one.handle(learn(84))
    assert "mean" not in one.memory
    assert not torch.equal(values(one.handle(Embed("aligned"))), before)


def test_where_layers_lie_and_then_all_of_them() -> None:
    one = party(image_table(), columns="sealed", layers=LAYERS)
    method = one.method
    assert isinstance(method, ProtoEVFL)
    bounds = answers.layer_bounds(method, one)
    width = answers.embeddings(method, one, one.rows.aligned).shape[-1]
    assert bounds[0][0] == 0
    assert bounds[0][1] == bounds[1][0]
    assert bounds[-1] == (0, width) == (0, bounds[1][1])
    tables = party(column_table(), columns="sealed")
    assert answers.layer_bounds(method, tables) == ()


@pytest.mark.parametrize("request_", [WarmUp(), SendFeatures(), Embed("aligned"), learn(4)])
def test_at_the_sealed_level_nothing_else_is_answered(request_: Message) -> None:
    with pytest.raises(MessageError, match="is not answered at the sealed level"):
        party(column_table(), columns="sealed").handle(request_)


def test_at_the_sealed_level_a_party_that_learnt_nothing_says_nothing() -> None:
    reply = party(column_table(), columns="sealed").handle(Embed("query"))
    assert isinstance(reply, Embeddings)
    assert reply.values.shape == (QUERY, 1)
    assert not reply.values.any()
