"""Several processes as one, for a party whose rows outgrow one device: `torchrun --nproc_per_node 2
-m protoevfl ...`.

    rows         each process keeps its own block of the pool on its device (`Dealt`)
    batch        rows x_b come from whoever holds them:  x_b = sum_r [b in block_r] x_b    *
    network      process r computes its share of the batch; outputs are put together       *
    batch-norm   mean and variance of the whole batch from sums over processes             * **
    loss         of the whole batch, the same in every process: in-batch negatives stay
    gradients    averaged over processes, as DistributedDataParallel does                  *

    * by all_reduce   ** in the backward pass, too

So the result is that of one process up to the order of sums. `DistributedDataParallel` itself is
not used: it averages losses of separate batches (NT-Xent would lose its negatives, the transport
its rows), hooks the forward of one module where a loss here is a function of several networks, and
its SyncBatchNorm does not run on CPUs. Every process holds the same parameters and draws the same
random numbers, so nothing has to be sent at the start.

Alone (no torchrun) every function here is the plain one.
"""

import atexit
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from protoevfl.errors import UserError


def join(device: str) -> None:
    """Joins the processes that torchrun started (nccl between GPUs, gloo between CPUs); does
    nothing without it."""
    if not dist.is_available() or not dist.is_torchelastic_launched() or dist.is_initialized():
        return
    if int(os.environ["WORLD_SIZE"]) > 1:
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)


def count() -> int:
    """How many processes work together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _block(rows: int) -> slice:
    """The rows of 0..rows-1 that are this process's share; sizes differ by one at most."""
    me, all_ = dist.get_rank(), count()
    return slice(rows * me // all_, rows * (me + 1) // all_)


def _sum(x: Tensor) -> Tensor:
    dist.all_reduce(x)
    return x


class _Summed(torch.autograd.Function):
    """y = sum_r x_r on every process, hence dL/dx_r = sum_r dL_r/dy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _sum(x.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _sum(gradients[0].clone())


def _summed(x: Tensor) -> Tensor:
    """The sum over processes of x, on each of them; differentiable."""
    return cast(Tensor, _Summed.apply(x))  # type: ignore[no-untyped-call]


def _whole(part: Tensor, rows: int, where: slice) -> Tensor:
    """(G, rows, ...) on every process from the parts (G, share, ...) of all."""
    full = part.new_zeros(part.shape[0], rows, *part.shape[2:])
    full[:, where] = part
    return _sum(full)


# ---------------------------------------------------------------- a batch


class _Batch:
    """What is being computed: whether batches are split here, and the rows of the one a network
    sees a share of."""

    split = False
    rows: int | None = None


@contextmanager
def splitting() -> Iterator[None]:
    """Inside, `split` splits: for losses whose gradients are averaged afterwards."""
    _Batch.split = count() > 1
    try:
        yield
    finally:
        _Batch.split = False


def batch_rows() -> int | None:
    """The rows of the whole batch where a network sees only its share, else None."""
    return _Batch.rows


class _Together(torch.autograd.Function):
    """Shares of an output as a whole. Every process takes the gradient of the same loss, and
    parameters take the mean over processes: so each share's gradient counts as often as there are
    processes."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, rows: int, where: slice) -> Tensor:
        ctx.where = where
        return _whole(part, rows, where)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][:, ctx.where] * count(), None, None


def split(net: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """net(x) for x (G, B, ...) -> (G, B, w), each process for its own rows of the batch."""
    if not _Batch.split:
        return net(x)
    where, _Batch.rows = _block(x.shape[1]), x.shape[1]
    try:
        part = net(x[:, where])
    finally:
        _Batch.rows = None
    return cast(Tensor, _Together.apply(part, x.shape[1], where))  # type: ignore[no-untyped-call]


def normalise(x: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """A share x (b, C, ...) of a batch, normalised by the whole batch's mean and variance; these;
    values a channel."""
    axes, like = [0, *range(2, x.dim())], (1, -1, *[1] * (x.dim() - 2))
    n = rows * x.shape[2:].numel()
    mean = _summed(x.sum(axes)) / n
    centred = x - mean.view(like)
    var = _summed(centred.square().sum(axes)) / n
    return centred * (var + 1e-5).rsqrt().view(like), mean.detach(), var.detach(), n


def average(parameters: Iterable[nn.Parameter]) -> None:
    """Gradients become their mean over processes, in one message."""
    gradients = [p.grad for p in parameters if p.grad is not None] if count() > 1 else []
    if gradients:
        flat = _sum(torch.cat([g.flatten() for g in gradients])) / count()
        for g, mean in zip(
            gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True
        ):
            g.copy_(mean.view_as(g))


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class Dealt:
    """Rows (G, n, ...) of which this process holds those from `start` on; stands where a tensor of
    rows would.

    Asking for rows is a joint act: every process asks for the same ones and gets them.
    """

    local: Tensor  # (G, share, ...)
    start: int
    rows: int  # n, of all processes together

    @property
    def shape(self) -> torch.Size:
        return torch.Size([self.local.shape[0], self.rows, *self.local.shape[2:]])

    @property
    def dtype(self) -> torch.dtype:
        return self.local.dtype

    @property
    def device(self) -> torch.device:
        return self.local.device

    def __len__(self) -> int:
        return len(self.local)

    def __getitem__(self, members: list[int]) -> "Dealt":
        return Dealt(self.local[members], self.start, self.rows)

    def repeat_interleave(self, times: int, dim: int) -> "Dealt":
        """Members side by side, as a tensor does."""
        assert dim == 0
        return Dealt(self.local.repeat_interleave(times, 0), self.start, self.rows)

    def followed_by(self, more: Tensor) -> "Dealt":
        """These rows and then others (G, k, ...) that every process has."""
        last = self.start + self.local.shape[1] == self.rows
        local = torch.cat([self.local, more], 1) if last else self.local
        return Dealt(local, self.start, self.rows + more.shape[1])

    def take(self, index: Tensor) -> Tensor:
        """The rows at index (G, B) -> (G, B, ...)."""
        held_here, at = self._place(index)
        members = torch.arange(len(self), device=self.device)[:, None]
        rows = self.local[members, at]
        return _sum(rows * held_here.view(*held_here.shape, *[1] * (rows.dim() - 2)))

    def gather(self, dim: int, index: Tensor) -> Tensor:
        """x[g, index[g, b, f], f] -> (G, B, F), as a tensor's `gather` along rows."""
        assert dim == 1
        held_here, at = self._place(index)
        return _sum(self.local.gather(1, at) * held_here)

    def _place(self, index: Tensor) -> tuple[Tensor, Tensor]:
        at = index - self.start
        held = self.local.shape[1]
        return (at >= 0) & (at < held), at.clamp(0, held - 1)

    def whole(self, work: Callable[[Tensor], Tensor]) -> Tensor:
        """`work` of all rows, (G, n, ...) -> (G, n, k), each process for its own; the results on
        every process."""
        part = work(self.local)
        return _whole(part, self.rows, slice(self.start, self.start + part.shape[1]))


def deal(rows: Iterable[Tensor], device: torch.device) -> Tensor:
    """Members' rows (n, ...) as (G, n, ...) on the device: all of them, or this process's share
    (typed as a tensor)."""
    members = list(rows)
    n = len(members[0])
    if count() == 1:
        return torch.stack(members).to(device)
    if n < count():
        raise UserError(f"{count()} processes cannot share {n} row(s); start fewer")
    where = _block(n)
    return cast(Tensor, Dealt(torch.stack([x[where] for x in members]).to(device), where.start, n))


def for_rows(rows: Tensor | Dealt, work: Callable[[Tensor], Tensor]) -> Tensor:
    """`work` (G, n, ...) -> (G, n, k), row by row, of rows that may be dealt out."""
    return rows.whole(work) if isinstance(rows, Dealt) else work(rows)


def moments(rows: Tensor | Dealt, work: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (G, 1, k) over rows of `work`(rows), of rows that may be dealt
    out."""
    part = work(rows.local if isinstance(rows, Dealt) else rows)
    if not isinstance(rows, Dealt):
        return part.mean(1, keepdim=True), part.std(1, keepdim=True)
    mean = _sum(part.sum(1, keepdim=True)) / rows.rows
    return mean, (_sum((part - mean).square().sum(1, keepdim=True)) / (rows.rows - 1)).sqrt()


def choose_device(device: str) -> str:
    """auto: the GPU where there is one."""
    has_gpu = torch.cuda.is_available()
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"unknown device '{device}'; there are auto, cpu, cuda")
    if device == "cuda" and not has_gpu:
        raise UserError("no CUDA device can be used here; take --device cpu or auto")
    return ("cuda" if has_gpu else "cpu") if device == "auto" else device
