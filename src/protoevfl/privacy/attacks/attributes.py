"""Attribute inference on tables: from the embeddings it received, the label owner infers a column
it was never shown.

The owner knows the column for some rows (leaked pairs) and trains a ridge classifier or regression
on embeddings; its yardsticks are the commonest value (categories), the mean (numbers), and the same
learner on the label alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import metrics
from protoevfl.privacy.learners import ridge


@dataclass(frozen=True)
class Inferred:
    """A category: accuracy and balanced accuracy. A number: r2. What does not apply is None."""

    accuracy: float | None
    balanced: float | None
    r2: float | None


def infer_category(
    f: Tensor, values: Tensor, leaked: Tensor, labels: Tensor
) -> dict[str, Inferred]:
    """values (N,) codes 0..K-1 of a category; leaked (N,) bool. Scores on the other rows."""
    k, hidden = int(values.max()) + 1, ~leaked
    onehot = F.one_hot(labels).float()
    guesses = {
        "from embeddings": ridge(f[leaked].float(), values[leaked], k, f[hidden].float()).argmax(1),
        "from the label alone": ridge(onehot[leaked], values[leaked], k, onehot[hidden]).argmax(1),
        "commonest value": values[leaked].mode().values.expand(int(hidden.sum())),
    }
    truth = values[hidden]
    return {
        name: Inferred(metrics.accuracy(g, truth), metrics.balanced_accuracy(g, truth, k), None)
        for name, g in guesses.items()
    }


def infer_number(f: Tensor, values: Tensor, leaked: Tensor, labels: Tensor) -> dict[str, Inferred]:
    """values (N,) of a number; R^2 = 1 - residual / variance on the rows not leaked."""
    onehot = F.one_hot(labels).float()
    return {
        "from embeddings": Inferred(None, None, _r2(f.float(), values, leaked)),
        "from the label alone": Inferred(None, None, _r2(onehot, values, leaked)),
        "mean": Inferred(None, None, 0.0),
    }


def infer_table(
    f: Tensor, rows: Tensor, spans: Sequence[tuple[int, int]], leaked: Tensor, labels: Tensor
) -> dict[str, dict[str, float]]:
    """Every column of an encoded table (N, p), by number: how much of it each way of guessing
    finds.

    A span of several columns is a category (one-hot): balanced accuracy. A single column is a
    number: R^2, 0 at least. Columns that never change among the leaked rows, or hold a value only
    the hidden rows have, are left out.
    """
    found: dict[str, dict[str, float]] = {}
    for number, (start, end) in enumerate(spans):
        if end - start > 1:
            codes = rows[:, start:end].argmax(1)
            if min(len(set(codes[part].tolist())) for part in (leaked, ~leaked)) < 2:
                continue
            made = infer_category(f, codes, leaked, labels)
            found[f"column {number + 1}, category"] = {
                name: float(m.balanced or 0.0) for name, m in made.items()
            }
        elif bool(rows[leaked, start].std() > 0) and bool(rows[~leaked, start].std() > 0):
            guessed = infer_number(f, rows[:, start], leaked, labels)
            found[f"column {number + 1}, number"] = {
                name: max(0.0, float(m.r2 or 0.0)) for name, m in guessed.items()
            }
    return found


def _r2(x: Tensor, values: Tensor, leaked: Tensor, strength: float = 0.1) -> float:
    mean, std = x[leaked].mean(0), x[leaked].std(0).clamp(min=1e-6)
    a, y = (x - mean) / std, values.float()
    centre = y[leaked].mean()
    gram = a[leaked].T @ a[leaked] + strength * int(leaked.sum()) * torch.eye(
        x.shape[1], device=x.device
    )
    guess = centre + a[~leaked] @ torch.linalg.solve(gram, a[leaked].T @ (y[leaked] - centre))
    truth = y[~leaked]
    return float(
        1 - (guess - truth).square().sum() / (truth - truth.mean()).square().sum().clamp(min=1e-12)
    )
