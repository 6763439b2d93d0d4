"""What is each party worth? The exact Shapley value of the accuracy (or AUC) of all subsets of
parties.

    phi_m = sum over S without m of  |S|! (M - |S| - 1)! / M!  [ v(S + m) - v(S) ],      sum_m phi_m = v(all) - v(none)

v(S) is measured on test rows with the parties of S alone, which prediction with any subset gives
without training again. Where the active party has a model of its own, it is in every S and v(none)
is that model alone; else v(none) answers the commonest class of the training rows (accuracy) or by
chance (AUC 1/2). Intervals: the test rows are drawn anew with replacement, every v and phi computed
again, and the middle 95 % reported. They tell the uncertainty of the test rows, not that of
training another time.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from protoevfl.artifacts.owner import StoredOwner, TestRows
from protoevfl.core.decisions import weighted_auc
from protoevfl.errors import UserError

MOST = 12  # parties: 4095 subsets
METRICS = ("accuracy", "auc")
_DRAWS_AT_ONCE = 1 << 24  # numbers


@dataclass(frozen=True)
class Share:
    """One party's value with its 95 % interval, as fractions (0.031 is 3.1 points)."""

    party: str
    value: float
    low: float
    high: float
    alone: float  # v({m})
    without: float  # v(all but m)


@dataclass(frozen=True)
class Worth:
    metric: str
    rows: int
    everyone: float  # v(all)
    nobody: float  # v(none)
    shares: tuple[Share, ...]
    subsets: dict[str, float]  # "bank+telco" -> v
    start: str = ""  # the party that counting begins from; "": nobody

    def to_dict(self) -> dict[str, Any]:
        shares = [vars(share) for share in self.shares]
        return {
            "metric": self.metric,
            "rows": self.rows,
            "everyone": self.everyone,
            "nobody": self.nobody,
            "parties": shares,
            "subsets": self.subsets,
            "start": self.start,
        }


def value(
    owner: StoredOwner, rows: TestRows, metric: str = "", draws: int = 1000, seed: int = 0
) -> Worth:
    """Shapley values; the metric is AUC for two classes and accuracy for more, unless given.

    Where the active party has a model of its own, that is where counting begins: the value of the
    others is what they add to it. Else every party counts, from nobody at all.
    """
    always = (0,) if owner.has_own_model else ()
    players = [m for m in range(len(owner.parties)) if m not in always]
    metric = metric or ("auc" if len(owner.classes) == 2 else "accuracy")
    _check(owner, rows, metric, len(players))
    subsets = [
        (*always, *(m for i, m in enumerate(players) if code >> i & 1))
        for code in range(1 << len(players))
    ]
    right = torch.stack([_answers(owner, rows, present, metric) for present in subsets])  # (2^M, n)
    once = torch.ones(1, len(rows.labels), dtype=torch.float64)
    v = _scores(right, rows.labels, once, metric)[0]  # (2^M,)
    phi, weights = shapley(v), _shapley_weights(len(players))
    low, high = _interval(right, rows.labels, metric, draws, seed, weights)
    everyone = len(v) - 1
    shares = tuple(
        Share(
            owner.parties[m],
            float(phi[i]),
            float(low[i]),
            float(high[i]),
            alone=float(v[1 << i]),
            without=float(v[everyone & ~(1 << i)]),
        )
        for i, m in enumerate(players)
    )
    named = {
        "+".join(owner.parties[m] for m in subset): float(v[code])
        for code, subset in enumerate(subsets)
        if subset
    }
    start = owner.parties[0] if always else ""
    return Worth(metric, len(rows.labels), float(v[-1]), float(v[0]), shares, named, start)


def shapley(v: Tensor) -> Tensor:
    """phi (M,) of values v (2^M,), indexed by the bits of the subset.

    >>> shapley(torch.tensor([0.0, 1.0, 2.0, 3.0]))
    tensor([1., 2.])
    """
    return _shapley_weights(int(math.log2(len(v)))).to(v) @ v


def _shapley_weights(parties: int) -> Tensor:
    """W (M, 2^M) with phi = W v."""
    weights = torch.zeros(parties, 1 << parties, dtype=torch.float64)
    for m, code in itertools.product(range(parties), range(1 << parties)):
        if not code >> m & 1:
            size = code.bit_count()
            share = (
                math.factorial(size) * math.factorial(parties - size - 1) / math.factorial(parties)
            )
            weights[m, code | 1 << m] += share
            weights[m, code] -= share
    return weights


def _check(owner: StoredOwner, rows: TestRows, metric: str, parties: int) -> None:
    if metric not in METRICS:
        raise UserError(f"the metric is {' or '.join(METRICS)}, not '{metric}'")
    if metric == "auc" and len(owner.classes) != 2:
        raise UserError(
            f"AUC is for two classes, this run has {len(owner.classes)}; use --metric accuracy"
        )
    if parties > MOST:
        raise UserError(
            f"exact values of {parties} parties need {1 << parties:,} subsets; the most is {MOST} "
            "parties"
        )
    if len(rows.labels) < 2 or len(set(rows.labels.tolist())) < 2:
        raise UserError(
            "the rows to measure on are of one class only, or fewer than two; give others with "
            "--input"
        )


def _answers(owner: StoredOwner, rows: TestRows, subset: tuple[int, ...], metric: str) -> Tensor:
    """(n,) 1 where the answer is right (accuracy), or the score of the second class (AUC)."""
    if not subset:
        commonest = torch.bincount(owner.labels).argmax()
        return (
            (rows.labels == commonest).double()
            if metric == "accuracy"
            else torch.zeros(len(rows.labels)).double()
        )
    p = owner.subset(rows, subset)
    return (p.argmax(1) == rows.labels).double() if metric == "accuracy" else p[:, 1].double()


def _scores(answers: Tensor, labels: Tensor, weights: Tensor, metric: str) -> Tensor:
    """v (B, S) of every subset under row weights (B, n)."""
    if metric == "accuracy":
        return weights @ answers.T / weights.sum(1, keepdim=True)
    return torch.stack([weighted_auc(torch.stack([-s, s], 1), labels, weights) for s in answers], 1)


def _interval(
    answers: Tensor, labels: Tensor, metric: str, draws: int, seed: int, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """The 2.5 % and 97.5 % points (M,) over bootstrap draws; a draw without both classes is drawn
    again as nothing."""
    n = len(labels)
    source = torch.Generator().manual_seed(seed)
    step = max(1, min(draws, _DRAWS_AT_ONCE // n))
    sampled = []
    for first in range(0, draws, step):
        chosen = torch.randint(n, (min(step, draws - first), n), generator=source)
        counts = torch.zeros(len(chosen), n, dtype=torch.float64)
        counts.scatter_add_(1, chosen, torch.ones_like(chosen, dtype=torch.float64))
        sampled.append(_scores(answers, labels, counts, metric) @ weights.T)  # (b, M)
    phi = torch.cat(sampled)
    phi = phi[phi.isfinite().all(1)]
    low, high = torch.quantile(phi, torch.tensor([0.025, 0.975], dtype=phi.dtype), dim=0)
    return low, high
