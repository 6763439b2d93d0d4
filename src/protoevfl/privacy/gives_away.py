"""What a party's message gives away of its columns: the party has both, so it measures before it
sends.

    number     R^2 of the best decoder on rows it was not fitted on: 0 = no better than the mean, 1 = exact
    category   balanced accuracy, from 0 = chance to 1 = always right
    picture    R^2 over all pixels

Every decoder is cross-fitted: it learns from four fifths of the rows, of which both sides are known
(a partner who leaked them, or customers of both companies), and rebuilds the last fifth. The score
is that of the best of three kinds, because a weak decoder is no evidence of privacy: ridge finds
what lies along directions; a Laplace kernel finds curves and groups; the nearest rows find what is
hidden at a small scale (a weight of 1e-6 beside one of 1).
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.errors import UserError

FOLDS = 5
MOST_ROWS = 600  # that decoders learn from and are tried on
STRENGTHS = (1e-4, 1e-2, 1.0)  # of ridge, per row
NEIGHBOURS = (1, 7)
LEAST_ROWS = 20  # fewer show nothing


class SelfAuditError(UserError):
    """The party's own measurement says no. The text names a column: it is for its own people and
    reaches the other side only as this class's name."""


def gives_away(
    columns: Mapping[str, Tensor], sent: Tensor, most_rows: int = MOST_ROWS
) -> dict[str, float]:
    """{column: score from 0 to 1}, the part of each column that a decoder rebuilds from `sent`.

    columns   name -> (n,) int64 codes of a category, (n,) floats of a number or (n, p) of a picture
    sent      (n, d): everything that left, or is about to leave, of the same rows side by side
    most_rows   that decoders learn from and are tried on: more take longer and rebuild more
    """
    rows = len(sent)
    if rows < LEAST_ROWS:
        return {}
    kept = torch.linspace(0, rows - 1, min(rows, most_rows)).long()
    x = _standard(sent.detach().cpu().double()[kept])
    targets = {name: _target(values.detach().cpu()[kept]) for name, values in columns.items()}
    y = torch.cat([target for target, _ in targets.values()], 1)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(x)) % FOLDS
    rebuilt = _decoded(x, y, fold)  # one (n, targets) per decoder
    scores = {}
    start = 0
    for name, (target, codes) in targets.items():
        end = start + target.shape[1]
        guesses = [guess[:, start:end] for guess in rebuilt]
        kind = _r2 if codes is None else _above_chance
        truth = target if codes is None else codes
        scores[name] = max(0.0, *(kind(guess, truth) for guess in guesses))
        start = end
    return scores


def columns_of(
    rows: Tensor,
    spans: Sequence[tuple[int, int]] | None,
    numbers: Sequence[int] = (),
    names: Sequence[str] = (),
) -> dict[str, Tensor]:
    """Encoded rows (n, ...) of a party as the columns that `gives_away` takes.

    spans     [start, end) of each source column; None for pictures
    numbers   features that are numbers; what follows one in its span says whether it was missing
    names     of the source columns in the order of the spans; numbered where there are none
    """
    if spans is None:
        return {"picture": rows.flatten(1).float() / 255}
    columns = {}
    for place, (start, end) in enumerate(spans):
        name = names[place] if names else f"column {place + 1}"
        is_number = start in numbers or end - start == 1
        columns[name] = rows[:, start] if is_number else rows[:, start:end].argmax(1)
    return columns


def _standard(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / x.std(0).clamp(min=1e-12)


def _target(values: Tensor) -> tuple[Tensor, Tensor | None]:
    """(what decoders fit, codes of a category or None)."""
    if values.is_floating_point():
        return values.double().reshape(len(values), -1), None
    codes = torch.unique(values, return_inverse=True)[1]
    return F.one_hot(codes).double(), codes


def _decoded(x: Tensor, y: Tensor, fold: Tensor) -> list[Tensor]:
    """Rebuilt targets (n, p) of every row by decoders that have not seen it."""
    width = x.shape[1] ** 0.5

    def linear(a: Tensor, b: Tensor) -> Tensor:
        return a @ b.T / x.shape[1]

    def laplace(a: Tensor, b: Tensor) -> Tensor:
        near: Tensor = (-torch.cdist(a, b) / width).exp()
        return near

    kernels = (linear, laplace)
    count = len(kernels) * len(STRENGTHS) + len(NEIGHBOURS)
    rebuilt = [torch.zeros_like(y) for _ in range(count)]
    for k in range(FOLDS):
        train, held = fold != k, fold == k
        a, query, mean = x[train], x[held], y[train].mean(0)
        guesses = []
        for kernel in kernels:
            if kernel is linear and len(a) > MOST_ROWS:
                guesses += [mean + query @ w for w in _ridge(a, y[train] - mean)]
                continue
            gram, across = kernel(a, a), kernel(query, a)
            for strength in STRENGTHS:
                root: Tensor = torch.linalg.cholesky(
                    gram + strength * torch.eye(len(a), dtype=x.dtype)
                )
                weights = torch.cholesky_solve(across.T, root).T  # fewer than targets of a picture
                guesses.append(mean + weights @ (y[train] - mean))
        near = torch.cdist(query, a).topk(max(NEIGHBOURS), 1, largest=False).indices
        guesses += [y[train][near[:, :count]].mean(1) for count in NEIGHBOURS]
        for whole, guess in zip(rebuilt, guesses, strict=True):
            whole[held] = guess
    return rebuilt


def _ridge(x: Tensor, y: Tensor) -> list[Tensor]:
    """(d, p) per strength: what the linear kernel fits, in a fraction of its time where rows are many."""
    gram, across = x.T @ x, x.T @ y
    eye = x.shape[1] * torch.eye(x.shape[1], dtype=x.dtype)
    return [torch.linalg.solve(gram + strength * eye, across) for strength in STRENGTHS]


def _r2(guess: Tensor, truth: Tensor) -> float:
    spread = (truth - truth.mean(0)).square().sum()
    if spread <= 1e-9 * len(truth):  # a column that never changes says nothing
        return 0.0
    return float(1 - (guess - truth).square().sum() / spread)


def _above_chance(guess: Tensor, codes: Tensor) -> float:
    """Balanced accuracy over values that occur in every fold, 0 at chance and 1 for no error."""
    counts = torch.bincount(codes)
    often = (counts >= FOLDS).nonzero()[:, 0]
    if len(often) < 2:
        return 0.0
    # the rarer a value, the more its score counts: balanced accuracy weighs values alike
    named = (guess / counts).argmax(1)
    recall = torch.stack([(named[codes == value] == value).double().mean() for value in often])
    chance = 1 / len(often)
    return float((recall.mean() - chance) / (1 - chance))
