"""The one training loop: epochs of shuffled batches, G members at once, on the CPU or as a CUDA
graph.

The loss of a batch is a function (rows (G, B), step) -> (G,); members do not touch each other
because the sum over members is differentiated and every parameter belongs to one member. On a GPU
the first steps run as they are, then one step is captured and replayed: no Python, no host
synchronisation, the same numbers.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from protoevfl import distributed
from protoevfl.core import random as rnd
from protoevfl.errors import UserError

# (rows (G, B), step) -> (G,); step: a tensor () on a GPU, an int on the CPU
Loss = Callable[[Tensor, Any], Tensor]
EAGER_STEPS = 3


def adamw(
    parameters: Iterable[nn.Parameter], lr: float | Tensor, weight_decay: float
) -> torch.optim.Optimizer:
    """AdamW, element-wise, so that stacked members are independent; fused into one kernel where it
    can be."""
    params = list(parameters)
    cuda = params[0].is_cuda
    return torch.optim.AdamW(params, lr=lr, weight_decay=weight_decay, fused=True, capturable=cuda)


def _sgd(
    parameters: Iterable[nn.Parameter],
    lr: float | Tensor,
    weight_decay: float,
    momentum: float = 0.9,
) -> torch.optim.Optimizer:
    """SGD with momentum."""
    return torch.optim.SGD(
        list(parameters), lr=lr, weight_decay=weight_decay, momentum=momentum, fused=True
    )


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw, "sgd": _sgd}


def cosine(step: int, steps: int) -> float:
    """Cosine decay from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * step / max(1, steps)))


class _Stepper:
    """One optimisation step, replayed as a CUDA graph after the first few where that is
    possible."""

    def __init__(self, step: Callable[[], None], device: torch.device, graph: bool = True) -> None:
        self.step, self.done = step, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream = None
        if graph and device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self) -> None:
        if self.stream is None:
            self.step()
        elif self.done < EAGER_STEPS:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.step()
            torch.cuda.current_stream().wait_stream(self.stream)
        else:
            if self.graph is None:
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph, stream=self.stream):
                    self.step()
            self.graph.replay()
        self.done += 1


def _counter(device: torch.device) -> Any:
    """Zero: a tensor where steps are captured in a graph, else an int (random draws are faster with
    it)."""
    return torch.zeros((), dtype=torch.int64, device=device) if device.type == "cuda" else 0


def fit(
    loss: Loss,
    parameters: Iterable[nn.Parameter],
    keys: Tensor,
    rows: int,
    *,
    epochs: int,
    batch: int,
    lr: float,
    weight_decay: float = 0.0,
    optimizer: str = "adamw",
    decay: bool = True,
    purpose: str = "fit",
    drop_last: bool = True,
    after: Callable[[], None] | None = None,
    graph: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> Tensor:
    """Trains in place; returns the mean loss of each epoch (epochs, G). `after` runs inside each
    step."""
    if optimizer not in OPTIMIZERS:
        raise UserError(f"unknown optimizer '{optimizer}'; there are {', '.join(OPTIMIZERS)}")
    if rows < 1:
        raise UserError(f"{purpose}: there are no rows to train on")
    device, g = keys.device, len(keys)
    batch = min(batch, rows)
    per_epoch = rows // batch if drop_last else math.ceil(rows / batch)
    steps = per_epoch * epochs
    rate = torch.tensor(lr, device=device)
    params = list(parameters)
    tool = OPTIMIZERS[optimizer](params, rate if device.type == "cuda" else lr, weight_decay)
    order = torch.zeros(g, per_epoch * batch, dtype=torch.int64, device=device)
    position, counter = _counter(device), _counter(device)
    offsets = torch.arange(batch, device=device)
    history = torch.zeros(epochs, g, device=device)
    total = torch.zeros(g, device=device)

    def step() -> None:
        nonlocal position, counter
        tool.zero_grad(set_to_none=False)
        with distributed.splitting():
            value = loss(order[:, position * batch + offsets], counter)
        value.sum().backward()  # type: ignore[no-untyped-call]
        distributed.average(params)
        tool.step()
        if after is not None:
            after()
        total.add_(value.detach())
        position += 1  # a tensor is changed in place, as the graph needs
        counter += 1

    run = _Stepper(step, device, graph and distributed.count() == 1)
    done = 0
    for epoch in range(epochs):
        shuffled = rnd.permutation(keys, purpose, epoch, rows)
        # a last short batch wraps around
        order.copy_(torch.cat([shuffled, shuffled], 1)[:, : order.shape[1]])
        position *= 0
        total.zero_()
        for _ in range(per_epoch):
            if decay:
                value = lr * cosine(done, steps)
                rate.fill_(value)
                if device.type != "cuda":
                    for group in tool.param_groups:
                        group["lr"] = value
            run()
            done += 1
        history[epoch] = total / per_epoch
        if progress is not None:
            progress(purpose, epoch + 1, epochs)
    for p in params:
        p.grad = None
    return history
