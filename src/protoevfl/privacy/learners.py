"""Small learners attackers use: least squares over label vectors, k-means, ridge and k-label
classifiers, matching.

All are deterministic functions of their inputs (k-means starts from a key), so that a privacy
figure can be repeated.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.core.transport import unit


def onto_simplex(v: Tensor) -> Tensor:
    """The nearest point with entries >= 0 that sum to one, along the last axis (Duchi et al. 2008).

    >>> onto_simplex(torch.tensor([2.0, 0.5, 0.0]))
    tensor([1., 0., 0.])
    """
    sorted_, _ = v.sort(-1, descending=True)
    excess = sorted_.cumsum(-1) - 1
    place = torch.arange(1, v.shape[-1] + 1, device=v.device, dtype=v.dtype)
    size = (sorted_ * place > excess).sum(-1, keepdim=True)
    shift = excess.gather(-1, size - 1) / size
    return (v - shift).clamp(min=0)


def memberships(
    a: Tensor, sums: Tensor, fixed: Tensor, start: Tensor, steps: int = 400, push: float = 0.0
) -> Tensor:
    """argmin_W || A^T W - S ||^2 - push ||W||^2, rows of W on the simplex, by accelerated projected
    gradients.

    a (N, D), sums (D, Z), fixed (N,) known labels or -1, start (N, Z) -> W (N, Z). `push` > 0
    drives rows to corners.
    """
    known = F.one_hot(fixed.clamp(min=0), sums.shape[1]).to(a)
    free = (fixed < 0)[:, None]
    rate = 1 / (largest(a) + push).clamp(min=1e-30)
    few = a.shape[0] < 2 * a.shape[1]  # then A A^T once is cheaper than A and A^T in every step
    gram, right = (a @ a.T, a @ sums) if few else (a[:0], a[:0])
    w = last = torch.where(free, start, known)
    ahead, momentum = w, 1.0
    for step in range(steps):
        gradient = (gram @ ahead - right if few else a @ (a.T @ ahead - sums)) - push * ahead
        w = torch.where(free, onto_simplex(ahead - rate * gradient), known)
        grown = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = w + (momentum - 1) / grown * (w - last)
        if step % 25 == 24 and float((w - last).abs().max()) < 1e-4:
            break
        last, momentum = w, grown
    return w


def largest(a: Tensor) -> Tensor:
    """The largest eigenvalue of A^T A, from whichever of A^T A and A A^T is smaller."""
    small = a if a.shape[1] <= a.shape[0] else a.T
    top: Tensor = torch.linalg.eigvalsh(small.T @ small)[-1]
    return top


def kmeans(x: Tensor, k: int, key: int = 0, restarts: int = 5, steps: int = 30) -> Tensor:
    """Centres (k, d) of the best of several k-means runs (k-means++ starts)."""
    centres = [lloyd(x, _spread(x, k, rnd.key(key, "kmeans", r)), steps) for r in range(restarts)]
    costs = torch.stack([torch.cdist(x, c).amin(1).square().sum() for c in centres])
    return centres[int(costs.argmin())]


def _spread(x: Tensor, k: int, key: int) -> Tensor:
    u = rnd.uniform(torch.tensor([key]), "start", 0, (k,))[0].to(x)
    chosen = [int(u[0] * (len(x) - 1))]
    distance = (x - x[chosen[0]]).square().sum(1)
    for i in range(1, k):
        edges = distance.cumsum(0)
        chosen.append(min(int(torch.searchsorted(edges, u[i] * edges[-1])), len(x) - 1))
        distance = torch.minimum(distance, (x - x[chosen[-1]]).square().sum(1))
    return x[chosen]


def lloyd(x: Tensor, centres: Tensor, steps: int) -> Tensor:
    """k-means steps from given centres; an empty cluster keeps its centre."""
    for _ in range(steps):
        member = F.one_hot(torch.cdist(x, centres).argmin(1), len(centres)).to(x)
        counts = member.sum(0)[:, None]
        centres = torch.where(counts > 0, member.T @ x / counts.clamp(min=1), centres)
    return centres


def ridge(x: Tensor, labels: Tensor, classes: int, query: Tensor, strength: float = 1.0) -> Tensor:
    """Scores (n, Z) of a ridge classifier on labelled rows x, in the kernel form (few rows, many
    columns)."""
    mean = x.mean(0)
    y = F.one_hot(labels, classes).to(x) - 1 / classes
    a = unit(x - mean)
    gram = a @ a.T + strength * torch.eye(len(a), device=x.device, dtype=x.dtype)
    scores: Tensor = unit(query - mean) @ a.T @ torch.linalg.solve(gram, y)
    return scores


def centroids(x: Tensor, labels: Tensor, classes: int, query: Tensor) -> Tensor:
    """Scores (n, Z): cosine to the class means of the labelled rows; a class without one scores
    lowest."""
    member = F.one_hot(labels, classes).to(x)
    scores = unit(query) @ unit(member.T @ unit(x)).T
    return torch.where(member.sum(0) > 0, scores, -2.0)


def spread_labels(
    x: Tensor, known: Tensor, classes: int, neighbours: int = 10, alpha: float = 0.95
) -> Tensor:
    """Label spreading over a nearest-neighbour graph (Zhou et al. 2004): scores (n, Z); known (n,)
    labels or -1."""
    u = unit(x.float())
    near = _neighbours(u, min(neighbours, len(x) - 1))  # (n, k)
    n, k = near.shape
    source = torch.arange(n, device=x.device).repeat_interleave(k)
    left = torch.cat([source, near.flatten()])
    right = torch.cat([near.flatten(), source])
    degree = torch.zeros(n, device=x.device).index_add_(
        0, left, torch.ones(len(left), device=x.device)
    )
    scale = degree.clamp(min=1).rsqrt()[:, None]
    start = F.one_hot(known.clamp(min=0), classes).float() * (known >= 0)[:, None]
    scores = start
    for _ in range(50):
        flow = torch.zeros_like(scores).index_add_(0, left, (scale * scores)[right])
        scores = alpha * scale * flow + (1 - alpha) * start
    return scores / scores.sum(0).clamp(min=1e-12)  # class mass normalisation


def _neighbours(u: Tensor, k: int, block: int = 2048) -> Tensor:
    parts = []
    for start in range(0, len(u), block):
        similar = u[start : start + block] @ u.T
        rows = torch.arange(len(similar), device=u.device)
        similar[rows, rows + start] = -2
        parts.append(similar.topk(k, 1).indices)
    return torch.cat(parts)
