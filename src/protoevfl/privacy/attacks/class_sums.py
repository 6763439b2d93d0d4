"""Class sums of the sealed level: a party knows its own rows, so the labels solve equations.

    sum_{n in fold k} W_nz x_n = s_kz  for every class z and fold k      W (N, Z) one-hot and unknown

x_n is whatever the party summed: d equations per class and fold. They hold for the *randomised*
labels, so even an exact solution is right no more often than randomised response allows. A party
that follows the protocol solves the system by the same relaxations as for prototypes
(linear_system.py); one that makes its features up gives every row a place of its own and reads the
randomised labels directly.

Recorded runs have the sums without encryption (`OpenLabels`), which are the same whole numbers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.messages import OpenLabels
from protoevfl.privacy.attacks.linear_system import solutions
from protoevfl.privacy.encrypted_sums import FOLDS
from protoevfl.privacy.view import Guess, Known, View


def class_sums(view: View, known: Known) -> dict[str, Guess]:
    """Guesses of parties that follow the protocol, each system with all their features."""
    summed = sealed_labels(view)
    if summed is None:
        return {}
    features = torch.cat([view.wide[m] for m in sorted(view.wide)], 1).double().cpu()
    standard = (features - features.mean(0)) / features.std(0).clamp(min=1e-6)
    counted = F.pad(standard, (0, 1), value=1.0)  # the last sum counts rows
    fold = torch.arange(len(counted)) % FOLDS
    a = torch.cat([counted * (fold == k)[:, None] for k in range(FOLDS)], 1)
    sums = a.T @ F.one_hot(summed, view.classes).to(a)
    found = solutions(a, sums, Known(known.labels.cpu()))
    return {f"class sums, {name}": Guess(w.argmax(1)) for name, w in found.items()}


def made_up_features(view: View, known: Known) -> dict[str, Guess]:
    """A party that sums spikes (one feature per row) instead of its columns."""
    summed = sealed_labels(view)
    if summed is None:
        return {}
    return {"class sums of spikes": Guess(summed)}


def sealed_labels(view: View) -> Tensor | None:
    """The randomised labels (N,) behind the sums a party was given; None where it got none."""
    for exchange in view.exchanges:
        if isinstance(exchange.request, OpenLabels):
            return exchange.request.labels[: view.rows].cpu()
    return None
