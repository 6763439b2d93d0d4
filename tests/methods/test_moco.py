"""MoCo: the ring of keys, the slow copy, and that rows of a kind come together."""

import copy

import torch

from protoevfl.core import losses
from protoevfl.core.transport import unit
from protoevfl.federation.party import Cohort, Rows
from protoevfl.methods.moco import MoCoSettings, Queue, follow, moco
from protoevfl.methods.ss_vfl import SSVFLI
from protoevfl.models import LeNet, embed
from tests.tiny import image_table, keys


def test_the_ring_keeps_the_newest_keys() -> None:
    queue = Queue(keys(2), 5, 3)
    assert torch.allclose(queue.keys.norm(dim=-1), torch.ones(2, 5))
    batches = [unit(torch.randn(2, 2, 3)) for _ in range(4)]
    for batch in batches:
        queue.add(batch)
    reference = torch.cat(batches, 1)[:, -5:]  # the obvious queue
    found = torch.cdist(queue.keys, reference)
    assert (found.min(1).values < 1e-6).all()
    assert (found.min(2).values < 1e-6).all()


def test_a_ring_smaller_than_a_batch_and_an_empty_one() -> None:
    for size in (3, 0):
        queue = Queue(keys(1), size, 4)
        fresh = unit(torch.randn(1, 7, 4))
        queue.add(fresh)
        assert queue.keys.shape == (1, size, 4)
        torch.testing.assert_close(queue.keys, fresh[:, :size])


def test_the_ring_gives_the_loss_of_the_plain_queue() -> None:
    q, k = torch.randn(2, 6, 4), torch.randn(2, 6, 4)
    ring, plain = Queue(keys(2), 6, 4), torch.empty(2, 0, 4)
    for _ in range(3):
        batch = unit(torch.randn(2, 2, 4))
        ring.add(batch)
        plain = torch.cat([plain, batch], 1)[:, -6:]
    torch.testing.assert_close(
        losses.info_nce_queue(q, k, ring.keys, 0.2), losses.info_nce_queue(q, k, plain, 0.2)
    )


def test_the_copy_follows_slowly() -> None:
    net = LeNet(keys(1), 2, 4)
    slow = copy.deepcopy(net).requires_grad_(False)
    before = [p.clone() for p in slow.parameters()]
    with torch.no_grad():
        for p in net.parameters():
            p.add_(1.0)
    follow(slow, net, 0.9)
    for old, new, target in zip(before, slow.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(new, 0.9 * old + 0.1 * target.detach())


def test_training_lowers_the_loss_and_keeps_the_embeddings_apart() -> None:
    table = image_table(pool=96)
    cohort = Cohort(
        SSVFLI(), Rows.of([table, image_table(1, pool=96)], torch.device("cpu")), keys(2)
    )
    history = moco(cohort, MoCoSettings(epochs=12, batch=32, strength=0.2, lr=3e-3))
    assert history.shape == (12, 2)
    assert (history[-3:].mean(0) < history[:2].mean(0) - 0.05).all()
    z = unit(embed(cohort.net, cohort.rows.pool))
    assert (z @ z.mT).mean() < 0.9  # not collapsed to one direction
