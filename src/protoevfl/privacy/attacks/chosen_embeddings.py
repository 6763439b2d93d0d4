"""Chosen embeddings: a malicious party answers with codes instead of embeddings and reads labels
off the prototypes.

    oracle(f (N, d)) -> mu (Z, d)      the label owner: embeddings in, prototypes out, as often as it will answer

    spikes    in each round a block of d rows has a direction to itself, all other rows send 0: mu_z[j] > 0 iff the
              j-th row of the block is of class z
    codes     random unit rows, new in each round; the labels by least squares over all answers

Calibration: the first answer is to known rows (k labels) where there are any, to learn scale and
class order through an unknown linear adaptor. Spikes are exact without noise; the owner's unit rows
and noise bound both alike.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.core.transport import unit
from protoevfl.privacy.attacks.linear_system import equations, solutions
from protoevfl.privacy.view import Guess, Known, Release

Oracle = Callable[[Tensor], Tensor]


def chosen_embeddings(
    oracle: Oracle,
    width: int,
    classes: int,
    rounds: int,
    known: Known,
    magnitude: float = 1.0,
    rank: int | None = None,
) -> dict[str, Guess]:
    """Guesses of both ways of asking, each with `rounds` answers."""
    if rounds == 0:
        return {}
    solved = codes(oracle, width, rounds, known, magnitude, rank)
    guesses = {
        f"chosen embeddings, codes, {name}": Guess(w.argmax(1)) for name, w in solved.items()
    }
    read = spikes(oracle, width, classes, rounds, known, magnitude)
    return {**guesses, "chosen embeddings, spikes": Guess(read.argmax(1))}


def spikes(
    oracle: Oracle, width: int, classes: int, rounds: int, known: Known, magnitude: float
) -> Tensor:
    """Scores (N, Z): the answer's coordinate of each row, relative to the other classes."""
    n = len(known.labels)
    scores = torch.zeros(n, classes, dtype=torch.float64)
    block = min(width, -(-n // rounds))
    back = calibration(oracle, width, known, magnitude)
    for t in range(rounds):
        rows = (torch.arange(block) + t * block) % n
        f = torch.zeros(n, width, dtype=torch.float64)
        f[rows, torch.arange(block)] = magnitude
        answer = oracle(f).double() @ back  # (Z, d)
        scores[rows] += answer[:, :block].T
    return scores


def calibration(oracle: Oracle, width: int, known: Known, magnitude: float) -> Tensor:
    """The inverse (d, d) of the linear map between what is sent and what comes back, from one row
    whose label is known.

    One direction an answer would need d answers; one answer shows the map of one direction, enough
    to fix its sign and scale. Without a known label: the identity.
    """
    rows = torch.nonzero(known.mask).flatten()
    eye = torch.eye(width, dtype=torch.float64)
    if not len(rows):
        return eye
    f = torch.zeros(len(known.labels), width, dtype=torch.float64)
    f[rows[0], 0] = magnitude
    seen = oracle(f)[known.labels[rows[0]], 0]
    return eye if abs(float(seen)) < 1e-9 else eye * torch.sign(seen).double()


def codes(
    oracle: Oracle, width: int, rounds: int, known: Known, magnitude: float, rank: int | None
) -> dict[str, Tensor]:
    """W (N, Z) by several solvers over all answers to random codes, which keep to `rank`
    directions."""
    n, used = len(known.labels), width if rank is None else min(rank, width)
    answers: list[Release] = []
    for t in range(rounds):
        f = rnd.normal(torch.tensor([rnd.key("codes")]), "codes", t, (n, used))[0].double()
        f = magnitude * unit(torch.nn.functional.pad(f, (0, width - used)))
        mu = oracle(f).double()
        if not answers or not torch.equal(answers[-1].mu, mu):
            answers.append(Release(0, f, mu, torch.ones(len(mu), dtype=torch.bool)))
    return solutions(*equations(answers, rank), known)
