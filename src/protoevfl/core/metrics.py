"""What a run reports about its predictions; every rate is a fraction between 0 and 1.

    accuracy            share of rows predicted right
    balanced accuracy   mean recall over the classes that occur
    macro F1            mean of 2 TP / (2 TP + FP + FN) over the classes that occur or are predicted
    AUC                 P( score of a positive > that of a negative ) + P( equal ) / 2, two classes
    H                   2 a b / (a + b), a = accuracy on rows of seen classes, b = of unseen classes

labels and predictions (N,) int, probabilities (N, Z). A number that has no meaning (AUC of ten
classes, unseen recall when nothing is unseen) is None. These run on the host after training, not
inside a training loop.

    >>> p = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.4, 0.6, 0.0], [0.1, 0.2, 0.7]])
    >>> r = evaluate(p, torch.tensor([0, 1, 2, 2]), unseen=[2])
    >>> r["accuracy"], r["seen_accuracy"], r["unseen_recall"], round(r["harmonic_mean"], 3)
    (0.75, 1.0, 0.5, 0.667)
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from protoevfl.core import decisions


def confusion(predictions: Tensor, labels: Tensor, classes: int) -> Tensor:
    """C_yz = #{ n : label y, prediction z } -> (Z, Z) float64."""
    cells = torch.bincount((labels * classes + predictions).flatten().cpu(), minlength=classes**2)
    return cells.view(classes, classes).double()


def accuracy(predictions: Tensor, labels: Tensor) -> float | None:
    """Share of rows predicted right; None without rows."""
    return float((predictions == labels).double().mean()) if labels.numel() else None


def per_class_recall(predictions: Tensor, labels: Tensor, classes: int) -> list[float | None]:
    """TP_z / N_z for each class; None for a class that does not occur."""
    c = confusion(predictions, labels, classes)
    pairs = zip(c.diagonal().tolist(), c.sum(1).tolist())
    return [hits / rows if rows else None for hits, rows in pairs]


def balanced_accuracy(predictions: Tensor, labels: Tensor, classes: int) -> float | None:
    """Mean recall over the classes that occur; None without rows."""
    recalls = [r for r in per_class_recall(predictions, labels, classes) if r is not None]
    return sum(recalls) / len(recalls) if recalls else None


def macro_f1(predictions: Tensor, labels: Tensor, classes: int) -> float | None:
    """Mean F1 over the classes that occur or are predicted (as scikit-learn counts them)."""
    c = confusion(predictions, labels, classes)
    touched = c.sum(0) + c.sum(1)  # 2 TP + FP + FN
    f1 = [2 * hit / t for hit, t in zip(c.diagonal().tolist(), touched.tolist()) if t]
    return sum(f1) / len(f1) if f1 else None


def auc(scores: Tensor, labels: Tensor) -> float | None:
    """Area under the ROC curve of scores (N,) for label 1 against 0, ties count half; None if a
    side is empty."""
    positive = scores[labels == 1].double()
    negative = scores[labels == 0].double().sort().values
    if not (positive.numel() and negative.numel()):
        return None
    below = torch.searchsorted(negative, positive) + torch.searchsorted(
        negative, positive, right=True
    )
    return float(below.double().mean()) / (2 * negative.numel())


def harmonic_mean(a: float | None, b: float | None) -> float | None:
    """2 a b / (a + b); 0 if both are 0, None if one is missing."""
    if a is None or b is None:
        return None
    return 2 * a * b / (a + b) if a + b else 0.0


def _is_in(labels: Tensor, classes: Sequence[int]) -> Tensor:
    """Which labels are among the given classes -> bool, the shape of labels."""
    return torch.isin(
        labels, torch.as_tensor(list(classes), dtype=labels.dtype, device=labels.device)
    )


def matched_accuracy(predictions: Tensor, labels: Tensor, unseen: Sequence[int]) -> float | None:
    """max over bijections of the unseen names, of the accuracy on rows of unseen classes (Hungarian
    matching).

    Two or more unseen classes can be told apart without anyone knowing which name belongs to which;
    this measures the telling apart. A row predicted as a seen class stays wrong. None without such
    rows.
    """
    from scipy.optimize import linear_sum_assignment

    rows = _is_in(labels, unseen)
    total = int(rows.sum())
    if not total:
        return None
    names = torch.as_tensor(list(unseen), device=labels.device)
    truth = (labels[rows, None] == names).double()  # (n, U)
    guess = (predictions[rows, None] == names).double()  # (n, U)
    table = (truth.T @ guess).cpu().numpy()  # (U, U)
    return float(table[linear_sum_assignment(table, maximize=True)].sum()) / total


def effective_rank(f: Tensor) -> Tensor:
    """exp( entropy of sigma / sum sigma ), sigma the singular values of the centred f (..., N, d)
    -> (...) float64.

    Between 1 and d (Roy and Vetterli 2007); 0 when all rows are equal up to rounding: a collapsed
    extractor.
    """
    x = f.detach().double()
    scale = x.abs().amax((-2, -1), keepdim=True).clamp_min(1e-300)
    x = x / scale  # squares of huge embeddings must not overflow
    centred = x - x.mean(-2, keepdim=True)
    sigma = torch.linalg.eigvalsh(centred.mT @ centred).clamp_min(0).sqrt()  # (..., d)
    noise = 1e-6 * torch.linalg.matrix_norm(x).unsqueeze(-1)
    sigma = torch.where(sigma > noise, sigma, 0.0)
    total = sigma.sum(-1, keepdim=True)
    p = sigma / torch.where(total > 0, total, 1.0)
    rank: Tensor = torch.special.entr(p).sum(-1).exp() * (total.squeeze(-1) > 0)
    return rank


def expected_calibration_error(
    probabilities: Tensor, labels: Tensor, bins: int = 15
) -> float | None:
    """sum_b N_b / N | accuracy_b - confidence_b | over equal bins of the top probability."""
    if not labels.numel():
        return None
    confidence, prediction = probabilities.double().max(-1)
    gap = (prediction == labels).double() - confidence  # (N,)
    bin_of_row = (confidence * bins).long().clamp(0, bins - 1)
    sums = torch.zeros(bins, dtype=gap.dtype, device=gap.device).index_add_(0, bin_of_row, gap)
    return float(sums.abs().sum()) / len(labels)


def evaluate(
    probabilities: Tensor,
    labels: Tensor,
    unseen: Sequence[int] = (),
    predictions: Tensor | None = None,
) -> dict[str, Any]:
    """The "metrics" of a run's record: probabilities (N, Z), labels (N,).

    unseen        classes without a label
    predictions   (N,) classes, where another rule than the likeliest chooses them
    """
    probabilities = probabilities.detach().cpu()
    labels = labels.detach().cpu()
    classes = probabilities.shape[1]
    predictions = probabilities.argmax(1) if predictions is None else predictions.cpu()
    hidden = _is_in(labels, unseen)
    seen_accuracy = accuracy(predictions[~hidden], labels[~hidden])
    unseen_recall = accuracy(predictions[hidden], labels[hidden])
    return {
        "accuracy": accuracy(predictions, labels),
        "balanced_accuracy": balanced_accuracy(predictions, labels, classes),
        "macro_f1": macro_f1(predictions, labels, classes),
        "auc": auc(probabilities[:, 1], labels) if classes == 2 else None,
        "seen_accuracy": seen_accuracy,
        "unseen_recall": unseen_recall,
        "harmonic_mean": harmonic_mean(seen_accuracy, unseen_recall),
        "per_class_recall": per_class_recall(predictions, labels, classes),
        "classes_predicted": len(set(predictions.tolist())),
        "brier": decisions.brier(probabilities, labels) if labels.numel() else None,
        "calibration_error": expected_calibration_error(probabilities, labels),
        "mean_rates": probabilities.mean(0).tolist() if labels.numel() else None,
    }
