"""Nearest prototype: row n belongs to the class whose prototype is most similar to the embedding
sent for it.

    cosine           argmax_z cos(f_n, mu_z)                    the paper's attack
    centred cosine   argmax_z cos(f_n - mean f, mu_z - mean f)
    L2               argmin_z ||f_n - mu_z||

For each round, for all rounds together (scores added), and once more after a few k-means steps on
the attacker's own pool that start from the prototypes. The centred form is also the matched filter,
hence near the best there is against strong noise.
"""

import torch
from torch import Tensor

from protoevfl.core.transport import cosine, unit
from protoevfl.privacy.learners import lloyd
from protoevfl.privacy.view import Guess, Known, Release, View


def nearest_prototype(view: View, known: Known) -> dict[str, Guess]:
    """Guesses of all variants; empty if no prototypes were seen."""
    releases = view.releases()
    if not releases:
        return {}
    scores = {
        name: [shown(measure(r.f, r.mu), r) for r in releases] for name, measure in MEASURES.items()
    }
    guesses: dict[str, Guess] = {}
    for name, parts in scores.items():
        for i, part in enumerate(parts):
            guesses[f"nearest prototype, {name}, message {i + 1}"] = Guess(part.argmax(1))
        if len(parts) > 1:
            guesses[f"nearest prototype, {name}, all messages"] = Guess(
                torch.stack(parts).mean(0).argmax(1)
            )
    refined = [shown(r, part) for part in releases if (r := _refined(view, part)) is not None]
    if refined:
        guesses["nearest prototype, refined on the own pool"] = Guess(
            torch.stack(refined).mean(0).argmax(1)
        )
    return guesses


def shown(scores: Tensor, release: Release) -> Tensor:
    """Scores (N, Z) with withheld classes out of the race."""
    return torch.where(release.present, scores, -torch.inf)


def centred(f: Tensor, mu: Tensor) -> Tensor:
    """cos(f_n - mean f, mu_z - mean f) -> (N, Z)."""
    return cosine(f - f.mean(0), mu - f.mean(0))


def _closeness(f: Tensor, mu: Tensor) -> Tensor:
    """-||f_n - mu_z||, in units of the mean distance."""
    distance = torch.cdist(f, mu)
    return -distance / distance.mean().clamp(min=1e-12)


MEASURES = {"cosine": cosine, "centred cosine": centred, "L2": _closeness}


def _refined(view: View, release: Release) -> Tensor | None:
    """Scores after three k-means steps from the prototypes; only where pool and prototypes share a
    space."""
    pool = view.pool.get(release.party)
    if pool is None or pool.shape[1] < release.mu.shape[1]:
        return None
    centre = release.f.mean(0)
    x = unit(pool[:, : release.mu.shape[1]].to(release.f) - centre)
    anchor = unit(release.mu - centre)
    centres = unit(anchor + unit(lloyd(x, anchor, 3)))
    return unit(release.f - centre) @ centres.T
