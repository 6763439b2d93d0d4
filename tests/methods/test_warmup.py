"""Warm-up: the loss falls, two views of a row come to embed alike, nothing else of the party
changes."""

import torch

from protoevfl.federation.party import Party
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.methods.warmup import WarmUpSettings, gather, own_rows, two_views, warm_up
from tests.tiny import column_table, image_table


def test_the_loss_falls_on_images_and_on_tables() -> None:
    for table in (image_table(), column_table()):
        party = Party(ProtoEVFL(), table, key=1)
        before = party.rows.pool.clone()
        history = warm_up(party, WarmUpSettings(epochs=40, batch=12, lr=3e-3))
        assert history.shape == (40, 1)
        assert history[-3:].mean() < history[:3].mean()
        assert torch.equal(party.rows.pool, before)


def test_views_are_two_different_pictures_of_the_same_rows() -> None:
    party = Party(ProtoEVFL(), image_table(), key=1)
    rows = own_rows(party)
    index = torch.arange(6)[None]
    first, second = two_views(party, rows, party.keys, WarmUpSettings())(
        index, torch.tensor(0)
    ).chunk(2, 1)
    assert first.shape[:2] == (1, 6)
    assert not torch.equal(first, second)
    assert gather(rows, index).shape == rows[:, :6].shape
