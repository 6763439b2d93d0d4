"""Small parts of training steps that several methods share."""

import torch
from torch import Tensor, nn

from protoevfl.core import augment
from protoevfl.federation.party import Cohort
from protoevfl.models import BatchNorm, inputs

MOMENTUM = 0.1  # of BatchNorm


def per_epoch(rows: int, batch: int) -> int:
    """Batches of an epoch: every row is used, sizes differ by one at most.

    >>> per_epoch(200, 64), per_epoch(5, 64)
    (3, 1)
    """
    return max(1, round(rows / batch))


def tracked(net: nn.Module, on: bool) -> nn.Module:
    """The network with the running figures of its batch-norms moving, or left alone."""
    for module in net.modules():
        if isinstance(module, BatchNorm):
            module.track = on
    return net


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of every parameter."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def one_view(cohort: Cohort, x: Tensor, step: int, strength: float) -> Tensor:
    """A random view of a batch x (G, B, ...): images at `strength`, tables with that share of
    columns replaced."""
    spans = cohort.rows.spans
    if spans is None:
        return augment.augment_images(x, cohort.keys, "augment", step, strength)
    columns = augment.span_index([b - a for a, b in spans], x.device)
    return augment.corrupt_columns(
        x, cohort.rows.pool, columns, cohort.keys, "augment", step, strength
    )


@torch.no_grad()
def calibrate(net: nn.Module, rows: Tensor) -> nn.Module:
    """The network with its batch-norms' running figures set to those of these rows (G, n, ...),
    exactly.

    A short training leaves running averages half-way between their start and the last weights; on
    tables (15 steps) a fifth of the start remains. `BatchNorm` moves its figures by a tenth of the
    batch's, hence the factor. A party that is kept for prediction has no aligned rows any more: its
    figures stay as they were set.
    """
    if not rows.shape[1]:
        return net
    norms = [module for module in net.modules() if isinstance(module, BatchNorm)]
    for norm in norms:
        norm.get_buffer("mean").zero_()
        norm.get_buffer("var").zero_()
    net.train()
    tracked(net, True)(inputs(rows))
    for norm in norms:
        norm.get_buffer("mean").mul_(1 / MOMENTUM)
        norm.get_buffer("var").mul_(1 / MOMENTUM)
    return net
