"""Embedding inversion: the label owner rebuilds a party's rows from the embeddings it received.

    decoder   embedding (d) -> row (p), a small perceptron trained on leaked pairs (rows of which
              both are known)
    against   the mean row, and the mean row of the class (the owner has the labels)

MSE on rows scaled to 0..1, PSNR = -10 log10 MSE, SSIM (Wang et al. 2004, windows up to 7 x 7,
images only). The ridge decoder is tried too and the better of the two is reported: a weak decoder
is no evidence of privacy.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import random as rnd


@dataclass(frozen=True)
class Rebuilt:
    """How well rows were rebuilt; ssim is None for tables."""

    mse: float
    psnr: float
    ssim: float | None


def invert(
    f: Tensor,
    rows: Tensor,
    leaked: Tensor,
    labels: Tensor | None = None,
    steps: int = 300,
    key: int = 0,
) -> dict[str, Rebuilt]:
    """f (N, d), rows (N, ...) in 0..1, leaked (N,) bool: pairs the owner has. Scores on the other
    rows."""
    x, target = _standard(f, leaked), rows.flatten(1).float()
    train, test = leaked, ~leaked
    guesses = {
        "decoder": perceptron(x[train], target[train], x[test], steps, key),
        "ridge decoder": _ridge_decoder(x[train], target[train], x[test]),
        "mean row": target[train].mean(0).expand(int(test.sum()), -1),
    }
    if labels is not None:
        guesses["mean row of the class"] = _class_mean(target, labels, train)[labels[test]]
    return {
        name: compare(g.clamp(0, 1), target[test], rows.shape[1:]) for name, g in guesses.items()
    }


def perceptron(
    x: Tensor, y: Tensor, query: Tensor, steps: int, key: int, hidden: int = 256
) -> Tensor:
    """Rows (n, p) for query (n, d): two layers, AdamW, full batches, noise on the input against
    over-fitting."""
    keys = torch.tensor([rnd.key(key, "decoder")], device=x.device)
    sizes = (x.shape[1], hidden, y.shape[1])
    weights = [
        (rnd.normal(keys, f"layer{i}", 0, (a, b))[0] / a**0.5).requires_grad_()
        for i, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False))
    ]
    bias = [
        torch.zeros(hidden, device=x.device, requires_grad=True),
        y.mean(0).clone().requires_grad_(),
    ]
    tool = torch.optim.AdamW([*weights, *bias], lr=3e-3, weight_decay=1e-2)

    def decode(z: Tensor) -> Tensor:
        out: Tensor = F.relu(z @ weights[0] + bias[0]) @ weights[1] + bias[1]
        return out

    for step in range(steps):
        tool.param_groups[0]["lr"] = 3e-3 * (1 - step / steps)
        noisy = x + 0.3 * rnd.normal(keys, "noise", step, tuple(x.shape))[0]
        tool.zero_grad()
        F.mse_loss(decode(noisy), y).backward()  # type: ignore[no-untyped-call]
        tool.step()
    with torch.no_grad():
        return decode(query)


def _ridge_decoder(x: Tensor, y: Tensor, query: Tensor, strength: float = 0.3) -> Tensor:
    """Linear decoder (n, p)."""
    mean = y.mean(0)
    gram = x.T @ x + strength * len(x) * torch.eye(x.shape[1], device=x.device)
    rows: Tensor = mean + query @ torch.linalg.solve(gram, x.T @ (y - mean))
    return rows


def _class_mean(rows: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """Mean leaked row of each class (Z, p); the overall mean where a class has none."""
    member = F.one_hot(labels, int(labels.max()) + 1).float() * known[:, None]
    counts = member.sum(0)[:, None]
    return torch.where(counts > 0, member.T @ rows / counts.clamp(min=1), rows[known].mean(0))


def compare(guess: Tensor, truth: Tensor, shape: torch.Size) -> Rebuilt:
    """Scores of rebuilt rows (n, p) in 0..1."""
    mse = float(F.mse_loss(guess, truth))
    psnr = -10 * float(torch.tensor(max(mse, 1e-12)).log10())
    return Rebuilt(
        mse, psnr, ssim(guess.view(-1, *shape), truth.view(-1, *shape)) if len(shape) == 3 else None
    )


def ssim(a: Tensor, b: Tensor, window: int = 7) -> float:
    """Mean structural similarity of images (n, c, H, W) in 0..1; 1 for equal ones.

    >>> x = torch.arange(64.0).view(1, 1, 8, 8) / 64
    >>> round(ssim(x, x), 3)
    1.0
    """
    c1, c2, window = 0.01**2, 0.03**2, min(window, *a.shape[-2:])

    def mean(x: Tensor) -> Tensor:
        return F.avg_pool2d(x, window, stride=1)

    ma, mb = mean(a), mean(b)
    va = mean(a * a) - ma**2
    vb = mean(b * b) - mb**2
    both = mean(a * b) - ma * mb
    value = (2 * ma * mb + c1) * (2 * both + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))
    return float(value.mean())


def _standard(f: Tensor, leaked: Tensor) -> Tensor:
    mean = f[leaked].float().mean(0)
    std = f[leaked].float().std(0).clamp(min=1e-6)
    return (f.float() - mean) / std
