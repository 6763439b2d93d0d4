"""Gradients give labels away: the loss gradient at a row's embedding points along its class.

    sign         the gradient at the logits is negative in the true class alone (width = classes), or two classes:
                 the sign along the leading direction
    direction    nearest class by cosine, classes described by the gradients of k known rows
    clustering   k-means on gradient directions, no label needed

(Li et al. 2021, Fu et al. 2022.) A row's gradients are normalised and added up over the first
batches, the first tenth of the training, and all of it.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from protoevfl.core.transport import unit
from protoevfl.messages import (
    BackwardBatch,
    BackwardMixed,
    Embeddings,
    ForwardBatch,
    Learn,
    Learned,
    OpenLabels,
)
from protoevfl.privacy.learners import centroids, kmeans
from protoevfl.privacy.view import Guess, Known, View


def gradient_attacks(view: View, known: Known) -> dict[str, Guess]:
    """All gradient attacks; empty if no gradient was seen."""
    guesses: dict[str, Guess] = {}
    for stage, g in stages(view).items():
        for name, guess in _one_stage(g, known, view.classes).items():
            guesses[f"gradient {name}, {stage}"] = guess
    return guesses


def stages(view: View) -> dict[str, Tensor]:
    """Summed unit gradients (N, d) of three lengths of training, colluding parties side by side."""
    return {
        name: torch.cat([have[p] for p in sorted(have)], 1) for name, have in sums(view).items()
    }


def sums(view: View) -> Mapping[str, Mapping[int, Tensor]]:
    """Stage -> party -> sum over its messages of g / ||g||, row by row (N, d); all the attacks need
    of them."""
    if view.sums:
        return view.sums
    by_stage: dict[str, dict[int, Tensor]] = {}
    every = view.gradients()
    for party in view.parties:
        steps = [(rows, g) for p, rows, g in every if p == party]
        if steps:
            first = _epoch(steps, view.rows)
            ends = {
                "first epoch": first,
                "first tenth": max(first, len(steps) // 10),
                "all epochs": len(steps),
            }
            for name, end in ends.items():
                by_stage.setdefault(name, {})[party] = summed(steps[:end], view.rows)
    return by_stage


def condensed(view: View) -> View:
    """The same knowledge for every attack in a fraction of the memory: batches become their sums
    and newest rows."""
    batched = {
        e.party
        for e in view.exchanges
        if isinstance(e.request, ForwardBatch | BackwardBatch | BackwardMixed)
    }
    last = {p: view.last_embeddings(p) for p in batched}
    kept = tuple(
        e
        for e in view.exchanges
        if isinstance(e.request, Learn | OpenLabels)
        or (
            isinstance(e.reply, Embeddings | Learned)
            and len(e.reply.values) == view.rows
            and e.party not in batched
        )
    )
    newest = {p: f for p, f in last.items() if f is not None}
    return replace(view, exchanges=kept, sums=sums(view), newest=newest)


def _epoch(steps: list[tuple[Tensor, Tensor]], rows: int) -> int:
    """How many messages it takes until almost every row has had a gradient."""
    seen: set[int] = set()
    for count, (batch, _) in enumerate(steps, 1):
        seen |= set(batch.tolist())
        if len(seen) >= 0.95 * rows:
            return count
    return len(steps)


def summed(steps: list[tuple[Tensor, Tensor]], rows: int) -> Tensor:
    """sum over batches of g / ||g||, row by row (N, d)."""
    total = steps[0][1].new_zeros(rows, steps[0][1].shape[1])
    for batch, g in steps:
        total.index_add_(0, batch, unit(g))
    return total


def _one_stage(g: Tensor, known: Known, classes: int) -> dict[str, Guess]:
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
