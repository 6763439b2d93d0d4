"""Class sums of the sealed level: a party knows its own rows, so the labels solve equations.

    sum_{n in fold k} W_nz x_n + noise = s_kz  for every class z and fold k     W (N, Z) one-hot, unknown

x_n is whatever the party summed: d equations per class and fold. They hold for the *randomised*
labels, so even an exact solution is right no more often than randomised response allows. A party
that follows the protocol sums rows of bounded length and gets noise on them; it solves the system by
the same relaxations as for prototypes (linear_system.py). One that makes its features up sums rows
so large that noise does not matter, gives each a place of its own, and reads the randomised labels.

Recorded runs have the sums without encryption (`OpenLabels`), which are the same whole numbers; the
scale of a party's features is learnt here from the shared rows alone.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.messages import OpenLabels
from protoevfl.privacy.attacks.linear_system import solutions
from protoevfl.privacy.encrypted_sums import LARGEST, plain_sums, with_noise
from protoevfl.privacy.summed_rows import Scale, folds_at
from protoevfl.privacy.view import Guess, Known, View


def class_sums(view: View, known: Known) -> dict[str, Guess]:
    """Guesses of parties that follow the protocol, from all their sums together."""
    requests = _requests(view)
    if not requests:
        return {}
    parts = [
        equations(view.wide[m].cpu(), requests[m], view) for m in sorted(view.wide) if m in requests
    ]
    a = torch.cat([rows for rows, _ in parts], 1)
    solved = solutions(a, torch.cat([sums for _, sums in parts]), Known(known.labels.cpu()))
    return {f"class sums, {name}": Guess(w.argmax(1)) for name, w in solved.items()}


def equations(features: Tensor, request: OpenLabels, view: View) -> tuple[Tensor, Tensor]:
    """A (N, D) and S (D, Z) of A'W = S from a party's features (N, d) and what it was sent."""
    levels = Scale.of(features, request.sigma).levels(features)
    labels = request.labels[: view.rows].cpu()
    folds = folds_at(request.sigma)
    fold = torch.arange(len(levels)) % folds
    sums = plain_sums(levels, labels, fold, folds, view.classes)
    if request.sigma:
        sums = with_noise(sums, bytes.fromhex(request.noise), request.sigma)
        unit = torch.full(levels.shape[1:], LARGEST, dtype=torch.float64)
    else:
        unit = levels.double().square().mean(0).sqrt().clamp(min=1e-6)
    part = F.one_hot(fold, folds)[:, :, None]  # (N, F, 1)
    return (levels[:, None] * part / unit).flatten(1), (sums / unit).mT.flatten(0, 1)


def made_up_features(view: View, known: Known) -> dict[str, Guess]:
    """A party that sums spikes (one feature per row) instead of its columns."""
    summed = sealed_labels(view)
    if summed is None:
        return {}
    return {"class sums of spikes": Guess(summed)}


def sealed_labels(view: View) -> Tensor | None:
    """The randomised labels (N,) behind the sums a party was given; None where it got none."""
    for request in _requests(view).values():
        return request.labels[: view.rows].cpu()
    return None


def _requests(view: View) -> dict[int, OpenLabels]:
    """What each party was asked to sum."""
    return {e.party: e.request for e in view.exchanges if isinstance(e.request, OpenLabels)}
