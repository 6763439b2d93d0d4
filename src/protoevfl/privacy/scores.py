"""How good a guess of labels is, and how sure we are of an average.

accuracy            share of right guesses among rows the attacker did not know
matched accuracy    the same under the best matching of class names (Hungarian)
NMI                 2 I(guess; label) / (H(guess) + H(label)): 0 for independent, 1 for equal up to names
interval            mean +- t s / sqrt(n), 95 %
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protoevfl.core.metrics import confusion
from protoevfl.privacy.view import Guess, Known


@dataclass(frozen=True)
class Score:
    """One guess against the truth; rates are fractions."""

    accuracy: float
    matched: float
    nmi: float
    classes: int  # how many classes the guess names

    @property
    def best(self) -> float:
        return self.accuracy


def matched_accuracy(guess: Tensor, labels: Tensor, classes: int) -> float:
    """max over one-to-one matchings of names of the accuracy."""
    from scipy.optimize import linear_sum_assignment

    table = confusion(guess.cpu(), labels.cpu(), classes).numpy()
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / max(1, len(labels)))


def nmi(guess: Tensor, labels: Tensor, classes: int) -> float:
    """Normalised mutual information (arithmetic mean).

    >>> round(nmi(torch.tensor([1, 1, 0, 0]), torch.tensor([0, 0, 1, 1]), 2), 3)
    1.0
    """
    p = confusion(guess.cpu(), labels.cpu(), classes) / max(1, len(labels))
    rows, columns = p.sum(1), p.sum(0)
    entropies = torch.special.entr(rows).sum() + torch.special.entr(columns).sum()
    joint = torch.special.entr(p).sum()
    return float(2 * (entropies - joint) / entropies) if entropies > 0 else 0.0


def score(guess: Guess, labels: Tensor, known: Known, classes: int) -> Score:
    """The guess on the rows whose labels were not known; a guess without names counts by its best
    matching."""
    hidden = ~known.mask
    g, y = guess.labels[hidden].to(labels.device), labels[hidden]
    matched = matched_accuracy(g, y, classes)
    plain = float((g == y).double().mean()) if len(y) else 0.0
    return Score(
        plain if guess.named else matched, matched, nmi(g, y, classes), len(set(g.tolist()))
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """(mean, half width of the 95 % interval); the width is nan for fewer than two values.

    >>> mean, half = interval([0.1, 0.2, 0.3])
    >>> round(mean, 2), round(half, 2)
    (0.2, 0.25)
    """
    from scipy.stats import t

    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return mean, math.nan
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, float(t.ppf(0.975, n - 1)) * spread / math.sqrt(n)
