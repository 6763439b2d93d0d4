"""MoCo at a party on its own rows: queries against the keys of a slowly following copy of the
network, and a queue.

    loss = 1/2 [ InfoNCE(q_1, k_2) + InfoNCE(q_2, k_1) ]     copy <- momentum * copy + (1 - momentum) * network

q of the network, k of the copy, 1 and 2 two views of a row. No byte crosses. Departs: momentum .99
instead of .999, because a run here has about a thousand steps and the slower copy would still be
the random start half-way; and the batch's own keys are queued before the contrast is taken, so that
batch-norm statistics cannot give the positive away (the source shuffles batches over GPUs for the
same reason).
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from protoevfl.core import losses
from protoevfl.core import random as rnd
from protoevfl.core.transport import unit
from protoevfl.federation.party import Cohort
from protoevfl.fit import fit
from protoevfl.methods.warmup import WarmUpSettings, own_rows, two_views
from protoevfl.models import Extractor


@dataclass(frozen=True)
class MoCoSettings(WarmUpSettings):
    """The warm-up's settings (epochs, batch, rates, temperature, views) and MoCo's two."""

    corruption: float = 0.3
    momentum: float = 0.99
    queue: int = 2048  # keys kept; at most half of the rows


def moco(cohort: Cohort, settings: MoCoSettings) -> Tensor:
    """Trains the cohort's network in place; returns the loss of each epoch (epochs, G)."""
    rows, keys = own_rows(cohort), rnd.derive(cohort.keys, "moco")
    views, net = two_views(cohort, rows, keys, settings), cohort.net
    assert isinstance(net, Extractor)
    slow = copy.deepcopy(net).requires_grad_(False)
    queue = Queue(keys, min(settings.queue, rows.shape[1] // 2), net.width)

    def loss(index: Tensor, step: rnd.Counter) -> Tensor:
        both = views(index, step)  # (G, 2B, ...)
        q1, q2 = net(both).chunk(2, 1)
        with torch.no_grad():
            fresh = unit(slow(both))
        k1, k2 = fresh.chunk(2, 1)
        first = losses.info_nce_queue(q1, k2, torch.cat([queue.keys, k2], 1), settings.temperature)
        second = losses.info_nce_queue(q2, k1, torch.cat([queue.keys, k1], 1), settings.temperature)
        queue.add(fresh)
        return 0.5 * (first + second)

    net.train()
    slow.train()
    return fit(
        loss,
        net.parameters(),
        keys,
        rows.shape[1],
        epochs=settings.epochs,
        batch=settings.batch,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        purpose="moco",
        after=lambda: follow(slow, net, settings.momentum),
        progress=cohort.progress,
    )


class Queue:
    """The last `size` keys (G, size, d) in a ring of fixed memory, as a CUDA graph needs."""

    def __init__(self, keys: Tensor, size: int, width: int) -> None:
        self.keys = unit(rnd.normal(keys, "queue", 0, (size, width)))
        self.place = torch.zeros((), dtype=torch.int64, device=keys.device)

    @torch.no_grad()
    def add(self, fresh: Tensor) -> None:
        """Overwrites the oldest keys by unit rows (G, B, d)."""
        size = self.keys.shape[1]
        count = min(size, fresh.shape[1])
        if count:
            at = (self.place + torch.arange(count, device=fresh.device)) % size
            self.keys.index_copy_(1, at, fresh[:, :count])
            self.place.add_(count)


@torch.no_grad()
def follow(slow: nn.Module, net: nn.Module, momentum: float) -> None:
    """slow <- momentum * slow + (1 - momentum) * net; running figures are the slow network's
    own."""
    torch._foreach_lerp_(list(slow.parameters()), list(net.parameters()), 1 - momentum)
