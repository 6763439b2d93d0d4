"""Everything used inside a training loop can be captured in a CUDA graph and replays to the same
numbers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from protoevfl.core import augment, gating, losses, priors, prototypes, transport

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
G, B, Z, D = 3, 16, 5, 8


def transport_step(x: Tensor) -> Tensor:
    f, mu, w = x[..., :D], x[:, :Z, D : 2 * D], x[..., 0].abs()
    p = priors.estimate(transport.similarity(f, mu, 0.1), 3, 0.01, w)
    counts = priors.pseudo_label_counts(transport.similarity(f, mu, 0.1), p)
    p = priors.mix(p, priors._uniform_like(f @ mu.mT), priors.mixing_ratio(counts))
    return transport.dual_cost(f, mu, p, 0.1, w).sum() + transport.dual_cost(f, mu, p).sum()


def head_step(x: Tensor) -> Tensor:
    f = x.reshape(G, B, 4, -1).transpose(1, 2)
    present = torch.ones(4, B, dtype=torch.bool, device=x.device).tril()
    rows = gating.aggregate(f, gating.gate(f, f[:, :, 0], present))
    labels = (x[..., 0] > 0).long()
    means, counts = prototypes.class_means(rows, labels, Z)
    mu = prototypes.update(means + 1, means, counts, 0.1, "ema")
    return losses.soft_cross_entropy(rows @ mu.mT, transport.select_cosine(rows, mu)).sum()


def contrast_step(x: Tensor) -> Tensor:
    queue = transport.unit(x.detach())
    loss = losses.nt_xent(x, x.roll(1, -1), 0.2) + losses.simsiam(x, x.flip(-1))
    return (loss + losses.info_nce_queue(x, x.flip(-1), queue, 0.2)).sum()


def view_step(x: Tensor) -> Tensor:
    keys, counter = torch.arange(G, device=x.device), (x[0, 0, 0] * 0).long()
    views = augment.ImageViews(blur=1, contrast=0.4, flip=True)
    view = augment.augment_images(x.view(G, B, 2, 4, 4), keys, "v", counter, 1.0, views)
    spans = torch.arange(x.shape[-1], device=x.device) // 4
    swapped = augment.corrupt_columns(x, x.flip(1), spans, keys, "s", counter, 0.3)
    return view.square().sum() + (swapped * x).sum()


@pytest.mark.parametrize("step", [transport_step, head_step, contrast_step, view_step])
def test_captures_and_replays(step: Callable[[Tensor], Tensor]) -> None:
    torch.cuda.set_sync_debug_mode("error")
    try:
        x = torch.zeros(G, B, 32, device="cuda", requires_grad=True)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(2):
                torch.autograd.grad(step(x), x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step(x)
            (gradient,) = torch.autograd.grad(loss, x)
        with torch.no_grad():
            x.normal_()
        graph.replay()
        again = step(x)
        (expected,) = torch.autograd.grad(again, x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(loss, again)
    torch.testing.assert_close(gradient, expected)
