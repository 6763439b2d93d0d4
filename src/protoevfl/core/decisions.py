"""What probabilities are worth: honest or not, which class to choose by them, and what one model
gains over another.

    rule            which class to choose: the likeliest, the balanced rule, or thresholds per class
    Brier score     mean over rows of sum_z (p_z - [y = z])^2; two classes: of (p_1 - y)^2
    balanced rule   the class with the largest p_z / rate_z: as if classes were equally frequent
    gain            a measure of one model minus that of another on the same rows, with the 95 %
                    interval of the paired bootstrap: both are measured on the same drawn rows

probabilities (N, Z), labels (N,). These run on the host after training.

    >>> brier(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1]))
    0.15625
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

DRAWS = 1000
CHUNK = 1 << 22  # numbers drawn at a time

RULES = ("likeliest", "balanced")
Rule = str | Mapping[int, float]  # one of RULES, or class number -> threshold

# (probabilities (N, Z), labels (N,), weights (R, N)) -> (R,)
Measure = Callable[[Tensor, Tensor, Tensor], Tensor]


def brier(probabilities: Tensor, labels: Tensor) -> float:
    """The Brier score; 0 is best."""
    p = probabilities.double()
    squares = (p - F.one_hot(labels, p.shape[1])).square()
    rows = squares[:, 1] if p.shape[1] == 2 else squares.sum(1)
    return float(rows.mean())


def choose(probabilities: Tensor, rule: Rule, rates: Tensor) -> Tensor:
    """Classes (N,) by a rule; rates (Z,) of the classes in training.

    Thresholds: a class is chosen where its probability reaches its threshold; of several such
    classes the one that exceeds it most (p / threshold), of none the likeliest other class.

    >>> p = torch.tensor([[0.7, 0.3], [0.9, 0.1]])
    >>> choose(p, "likeliest", p[0]).tolist(), choose(p, {1: 0.25}, p[0]).tolist()
    ([0, 0], [1, 0])
    """
    if rule == "likeliest":
        return probabilities.argmax(1)
    if rule == "balanced":
        return balanced_choice(probabilities, rates)
    assert not isinstance(rule, str)
    thresholds = torch.full((probabilities.shape[1],), torch.inf, dtype=torch.float64)
    thresholds[list(rule)] = torch.tensor(list(rule.values()), dtype=torch.float64)
    excess, listed = (probabilities.double() / thresholds.to(probabilities.device)).max(1)
    others = probabilities.clone()
    if len(rule) < probabilities.shape[1]:
        others[:, list(rule)] = -1.0
    return torch.where(excess >= 1, listed, others.argmax(1))


def balanced_choice(probabilities: Tensor, rates: Tensor) -> Tensor:
    """Classes (N,) by p_z / rate_z; a class that was never seen in training has no rate and counts
    as the rarest."""
    least = rates[rates > 0].min()
    return (probabilities / rates.to(probabilities).clamp(min=float(least))).argmax(1)


def _weighted_accuracy(probabilities: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Accuracy (R,) of rows that count `weights` (R, N) times."""
    right = (probabilities.argmax(1) == labels).to(weights)
    return weights @ right / weights.sum(1)


def weighted_auc(probabilities: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """AUC (R,) of two classes, ties count half, of rows that count `weights` (R, N) times."""
    values, place = torch.unique(probabilities[:, 1].double(), return_inverse=True)
    empty = weights.new_zeros(len(weights), len(values))
    positive = empty.index_add(1, place, weights * (labels == 1))
    negative = empty.index_add(1, place, weights * (labels == 0))
    below = negative.cumsum(1) - negative / 2
    return (positive * below).sum(1) / (positive.sum(1) * negative.sum(1))


def gain(joint: Tensor, alone: Tensor, labels: Tensor, seed: int = 0) -> dict[str, float | str]:
    """AUC (two classes, else accuracy) of `joint` minus that of `alone` (N, Z), and its 95 %
    interval."""
    name = "auc" if joint.shape[1] == 2 and len(torch.unique(labels)) == 2 else "accuracy"
    measure: Measure = weighted_auc if name == "auc" else _weighted_accuracy
    joint, alone, labels = (tensor.detach().cpu() for tensor in (joint, alone, labels))

    def difference(weights: Tensor) -> Tensor:
        return measure(joint, labels, weights) - measure(alone, labels, weights)

    n = len(labels)
    random = torch.Generator().manual_seed(seed)
    drawn = []
    for _ in range(0, DRAWS, step := max(1, min(DRAWS, CHUNK // n))):
        rows = torch.randint(n, (step, n), generator=random)
        weights = torch.zeros(step, n, dtype=torch.float64).scatter_add_(
            1, rows, torch.ones(step, n).double()
        )
        drawn.append(difference(weights))
    low, high = (
        torch.cat(drawn).nanquantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    )
    middle = float(difference(torch.ones(1, n, dtype=torch.float64))[0])
    return {"measure": name, "difference": middle, "low": low, "high": high}


def joining(gain: Mapping[str, float | str], whom: str = "the label party") -> str:
    """Does joining pay? One sentence with the paired gain and its interval, in points.

    >>> joining({"measure": "auc", "difference": 0.047, "low": 0.031, "high": 0.064})
    'joining pays: 4.7 points of AUC over the label party alone (95 % interval 3.1 to 6.4)'
    >>> small = {"measure": "accuracy", "difference": 0.002, "low": -0.01, "high": 0.015}
    >>> joining(small).split(":")[0]
    'joining is not shown to pay'
    """
    verdict = "joining is not shown to pay"
    if float(gain["low"]) > 0:
        verdict = "joining pays"
    elif float(gain["high"]) <= 0:
        verdict = "joining does not pay here"
    what = "AUC" if gain["measure"] == "auc" else "accuracy"
    points, low, high = (100 * float(gain[name]) for name in ("difference", "low", "high"))
    interval = f"(95 % interval {low:.1f} to {high:.1f})"
    return f"{verdict}: {points:.1f} points of {what} over {whom} alone {interval}"
