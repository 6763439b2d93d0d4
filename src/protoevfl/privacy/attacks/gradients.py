"""Gradients give labels away: the loss gradient at a row's embedding points along its class.

    sign         the gradient at the logits is negative in the true class alone (width = classes), or two classes:
                 the sign along the leading direction
    direction    nearest class by cosine, classes described by the gradients of k known rows
    clustering   k-means on gradient directions, no label needed

(Li et al. 2021, Fu et al. 2022.) A row's gradients are normalised and added up over the first batches, the first
tenth of the training, and all of it.
"""

import torch
from torch import Tensor

from protoevfl.core.transport import unit
from protoevfl.privacy.learners import centroids, kmeans
from protoevfl.privacy.view import Guess, Known, View


def gradient_attacks(view: View, known: Known) -> dict[str, Guess]:
    """All gradient attacks; empty if no gradient was seen."""
    guesses: dict[str, Guess] = {}
    for stage, g in stages(view).items():
        for name, guess in one_stage(g, known, view.classes).items():
            guesses[f"gradient {name}, {stage}"] = guess
    return guesses


def stages(view: View) -> dict[str, Tensor]:
    """Summed unit gradients (N, d) of three lengths of training."""
    steps = view.gradients()
    if not steps:
        return {}
    first = _epoch(steps, view.rows)
    ends = {"first epoch": first, "first tenth": max(first, len(steps) // 10), "all epochs": len(steps)}
    return {name: summed(steps[:end], view) for name, end in ends.items()}


def _epoch(steps: list[tuple[int, Tensor, Tensor]], rows: int) -> int:
    """How many messages it takes until almost every row has had a gradient."""
    seen: set[int] = set()
    for count, (_, batch, _) in enumerate(steps, 1):
        seen |= set(batch.tolist())
        if len(seen) >= 0.95 * rows:
            return count
    return len(steps)


def summed(steps: list[tuple[int, Tensor, Tensor]], view: View) -> Tensor:
    """sum over batches of g / ||g||, row by row; colluding parties side by side."""
    parts = []
    for party in view.parties:
        mine = [(rows, g) for p, rows, g in steps if p == party]
        if mine:
            total = mine[0][1].new_zeros(view.rows, mine[0][1].shape[1])
            for rows, g in mine:
                total.index_add_(0, rows, unit(g))
            parts.append(total)
    return torch.cat(parts, 1)


def one_stage(g: Tensor, known: Known, classes: int) -> dict[str, Guess]:
    """Sign, direction and clustering on summed gradients (N, d)."""
    u = unit(g.float())
    guesses = {"clustering": Guess(torch.cdist(u, kmeans(u, classes)).argmin(1), named=False)}
    if g.shape[1] == classes:
        guesses["sign"] = Guess(g.argmin(1))
    if classes == 2:
        direction = torch.linalg.svd(u - u.mean(0), full_matrices=False)[2][0]
        guesses["sign along the leading direction"] = Guess((u @ direction > 0).long(), named=False)
    mask = known.mask.to(u.device)
    if bool(mask.any()):
        labels = known.labels.to(u.device)
        guesses["direction"] = Guess(centroids(u[mask], labels[mask], classes, u).argmax(1))
    return guesses
