"""Which part of a pool does no aligned row cover? Found by a party without any label.

A class nobody labelled is absent from the aligned rows by definition, so its pool rows lie where
aligned rows are rare.

    d_i   mean cosine distance of pool row i to its 3 nearest aligned rows
    S_i   mean of d over row i and its k nearest pool rows
    A_j   the same for aligned row j, j itself left out
    both  minus the (shrunk) mean of A in the row's group, standardised by A, plus the same of a
          cross-fitted logistic score "pool or aligned?"; groups are clusters of the pool
    w_i   = sigmoid(2 (S_i - 3))    membership: beyond 3 standard deviations of A

No share of the pool is guessed.

All tensors carry leading group axes (G, ...); f are embeddings (G, n, d).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.core.transport import unit

NEAREST, SHRINK, FOLDS, SCALE = 3, 5.0, 3, 6.0


@dataclass(frozen=True)
class Novelty:
    """Scores of pool rows (G, n) and aligned rows (G, N), in standard deviations of the latter."""

    pool: Tensor
    aligned: Tensor


def _neighbours(x: Tensor, among: Tensor, k: int, itself: bool, chunk: int = 512) -> Tensor:
    """Indices (G, n, k) of the k rows of `among` (G, m, d) most similar to each row of x (G, n, d),
    both unit.

    With `itself` off the best match, the row itself, is left out.
    """
    skip = 0 if itself else 1
    parts = [
        (x[:, i : i + chunk] @ among.mT).topk(k + skip, dim=-1).indices[..., skip:]
        for i in range(0, x.shape[1], chunk)
    ]
    return torch.cat(parts, 1)


def _at(values: Tensor, index: Tensor) -> Tensor:
    """values (G, n) at index (G, m, k) -> (G, m, k)."""
    return values.gather(1, index.flatten(1)).view(index.shape)


def _distances(
    xu: Tensor, xa: Tensor, near_pool: Tensor, near_aligned: Tensor
) -> tuple[Tensor, Tensor]:
    """S (G, n) and A (G, N) of the module's head: smoothed distance to aligned rows, leave-one-out
    for aligned ones."""
    to_aligned = 1 - xu @ xa.mT  # (G, n, N)
    # (G, n, 4), one spare for leaving one out
    values, which = to_aligned.topk(NEAREST + 1, dim=-1, largest=False)
    d = values[..., :NEAREST].mean(-1)  # (G, n)
    s = (_at(d, near_pool).sum(-1) + d) / (near_pool.shape[-1] + 1)
    among = (1 - xa @ xa.mT) + 9 * torch.eye(xa.shape[1], device=xa.device)
    own = among.topk(NEAREST, dim=-1, largest=False).values.mean(-1)  # (G, N)
    g, n, k = near_aligned.shape
    index = near_aligned.flatten(1)[..., None].expand(-1, -1, NEAREST + 1)
    v = values.gather(1, index).view(g, n, k, NEAREST + 1)
    other = (
        which.gather(1, index).view(g, n, k, NEAREST + 1)
        != torch.arange(n, device=xa.device)[:, None, None]
    )
    kept = other & (other.cumsum(-1) <= NEAREST)
    # (G, N, k) distance of the neighbours without row j
    without = (v * kept).sum(-1) / kept.sum(-1)
    return s, (without.sum(-1) + own) / (k + 1)


def _logistic(x: Tensor, y: Tensor, weight: Tensor, ridge: float = 1.0, steps: int = 12) -> Tensor:
    """Newton's method for a ridge logistic regression: x (G, n, d), y, weight (G, n) ->
    coefficients (G, d+1)."""
    x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    beta = x.new_zeros(x.shape[0], x.shape[-1])
    penalty = torch.full_like(beta, ridge)
    penalty[:, -1] = 1e-6
    for _ in range(steps):
        p = (x @ beta[..., None]).squeeze(-1).sigmoid()
        gradient = (x * (weight * (p - y))[..., None]).sum(1) + penalty * beta
        curvature = (
            x * (weight * (p * (1 - p)).clamp(min=1e-6))[..., None]
        ).mT @ x + torch.diag_embed(penalty)
        beta = beta - torch.linalg.solve(curvature, gradient).clamp(-10, 10)
    return beta


def _contrast(
    xu: Tensor, xa: Tensor, weight: Tensor, keys: Tensor, near_pool: Tensor, near_aligned: Tensor
) -> tuple[Tensor, Tensor]:
    """Cross-fitted log-odds "pool, not aligned", smoothed over pool neighbours -> (G, n), (G,
    N)."""
    (g, n, _), count = xu.shape, xa.shape[1]
    fold_u = rnd.permutation(keys, "pool fold", 0, n) % FOLDS
    fold_a = rnd.permutation(keys, "aligned fold", 0, count) % FOLDS
    x = SCALE * torch.cat([xu, xa], 1)
    y = torch.cat([x.new_ones(g, n), x.new_zeros(g, count)], 1)
    su, sa = x.new_zeros(g, n), x.new_zeros(g, count)
    for k in range(FOLDS):
        wu, wa = (fold_u != k).float(), (fold_a != k) * weight
        both = torch.cat([wu / wu.sum(1, keepdim=True), wa / wa.sum(1, keepdim=True)], 1) * 400
        beta = _logistic(x, y, both)
        score = (x @ beta[:, :-1, None]).squeeze(-1) + beta[:, -1:]
        su = torch.where(fold_u == k, score[:, :n], su)
        sa = torch.where(fold_a == k, score[:, n:], sa)
    around = near_pool.shape[-1] + 1
    return (_at(su, near_pool).sum(-1) + su) / around, (_at(su, near_aligned).sum(-1) + sa) / around


def _centre(
    s: Tensor, a: Tensor, group_u: Tensor, group_a: Tensor, groups: int
) -> tuple[Tensor, Tensor]:
    """Both minus the shrunk mean of A in the row's group, standardised by A."""
    member = F.one_hot(group_a, groups).float()  # (G, N, K)
    total = (member * a[..., None]).sum(1) + SHRINK * a.mean(1, keepdim=True)
    mean = total / (member.sum(1) + SHRINK)  # (G, K)
    return _standardise(s - mean.gather(1, group_u), a - mean.gather(1, group_a))


def _standardise(s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    middle, spread = a.mean(1, keepdim=True), a.std(1, keepdim=True) + 1e-6
    return (s - middle) / spread, (a - middle) / spread


def clusters(
    x: Tensor, k: int, keys: Tensor, weight: Tensor | None = None, steps: int = 20
) -> tuple[Tensor, Tensor]:
    """Spherical k-means of unit rows x (G, n, d) -> labels (G, n), centres (G, k, d); seeded by
    spread-out rows."""
    g, n, _ = x.shape
    w = x.new_ones(g, n) if weight is None else weight
    # (G, k, n): Gumbel-like choice
    score = rnd.uniform(keys, "cluster seeds", 0, (k, n)).clamp(min=1e-9).log()
    member = torch.arange(g, device=x.device)
    first = (score[:, 0] / w.clamp(min=1e-9)).argmax(1)
    centre_ = x[member, first][:, None]
    for j in range(1, k):
        far = (1 - (x @ centre_.mT).amax(-1)).clamp(min=1e-6) * w
        centre_ = torch.cat(
            [centre_, x[member, (score[:, j] / far.clamp(min=1e-9)).argmax(1)][:, None]], 1
        )
    for _ in range(steps):
        label = (x @ centre_.mT).argmax(-1)
        one = F.one_hot(label, k).float() * w[..., None]
        moved = one.mT @ x
        centre_ = torch.where(one.sum(1)[..., None] > 0, unit(moved), centre_)
    return (x @ centre_.mT).argmax(-1), centre_


def novelty(
    f_pool: Tensor, f_aligned: Tensor, keys: Tensor, near: int | None = None, groups: int = 15
) -> Novelty:
    """Novelty of each pool row, from embeddings alone."""
    xu, xa = unit(f_pool), unit(f_aligned)
    n, count = xu.shape[1], xa.shape[1]
    near = near if near is not None else (20 if n >= 2000 else 10)
    near = min(near, n - 1)
    near_pool = _neighbours(xu, xu, near, False)
    near_aligned = _neighbours(xa, xu, near, True)
    group_u, middles = clusters(xu, min(groups, n), keys)
    group_a = (xa @ middles.mT).argmax(-1)
    k = middles.shape[1]
    rate = F.one_hot(group_u, k).float().mean(1)  # (G, K) share of the pool
    counts = F.one_hot(group_a, k).float().sum(1)
    # aligned rows weighted to the pool's mixture
    weight = (rate / counts.clamp(min=1)).gather(1, group_a)
    weight = 0.5 * weight / weight.sum(1, keepdim=True) + 0.5 / count
    s, a = _centre(*_distances(xu, xa, near_pool, near_aligned), group_u, group_a, k)
    s2, a2 = _centre(*_contrast(xu, xa, weight, keys, near_pool, near_aligned), group_u, group_a, k)
    return Novelty(*_standardise(s + s2, a + a2))


def strength(scores: Novelty) -> Tensor:
    """How clearly something is uncovered (G,): the 95 % quantile of S, in standard deviations of A.

    With nothing unseen it was 2.5 +- 0.4 per party, with a frequent unseen class 4 to 8
    (docs/notes/unseen-classes.md).
    """
    return scores.pool.quantile(0.95, dim=1)


def members(scores: Novelty, at: Tensor | float = 3.0) -> Tensor:
    """Soft membership (G, n) of the uncovered part: beyond `at` standard deviations of the aligned
    rows' scores."""
    bar = at[:, None] if isinstance(at, Tensor) else at
    return torch.sigmoid(2 * (scores.pool - bar))


def mixture(
    f: Tensor, weight: Tensor, keys: Tensor, k: int, on: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Diagonal Gaussian mixture of weighted rows f (G, n, d) -> means, variances (G, k, d), weights
    (G, k).

    Hard k-means on the first `on` dimensions (unit length); a component without rows has weight 0.
    """
    label, _ = clusters(unit(f[..., :on]), k, keys, weight + 1e-9)
    one = F.one_hot(label, k).float() * (weight + 1e-9)[..., None]  # (G, n, k)
    total = one.sum(1)  # (G, k)
    mean = one.mT @ f / total[..., None].clamp(min=1e-9)
    variance = (one.mT @ f.square() / total[..., None].clamp(min=1e-9) - mean.square()).clamp(
        min=1e-4
    )
    return mean, variance, total / total.sum(1, keepdim=True)
