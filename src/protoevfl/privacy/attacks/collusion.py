"""Colluding passive parties: all their messages and all their rows in one hand.

Their equations share one unknown label vector, so the linear system of a coalition has as many
equations as its members together; nearest-prototype scores add up.
"""

import torch

from protoevfl.privacy.attacks.linear_system import linear_system
from protoevfl.privacy.attacks.nearest_prototype import MEASURES, shown
from protoevfl.privacy.view import Guess, Known, View


def collusion(view: View, known: Known) -> dict[str, Guess]:
    """Guesses of a coalition; empty for a single party."""
    if len(view.parties) < 2:
        return {}
    guesses = {
        name.replace("linear", "joint linear"): g for name, g in linear_system(view, known).items()
    }
    releases = view.releases()
    for name, measure in MEASURES.items():
        scores = [shown(measure(r.f, r.mu), r) for r in releases]
        if scores:
            guesses[f"joint nearest prototype, {name}"] = Guess(
                torch.stack(scores).mean(0).argmax(1)
            )
    return guesses
