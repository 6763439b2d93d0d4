"""Model completion (Fu et al. 2022): finish the own model with k labels, after training has shaped
the extractor.

The features are the embeddings the party sent last, which messages from the owner have made better;
where prototypes were seen they count as one more labelled row of their class. Classifiers as
without communication.
"""

import torch

from protoevfl.core.transport import unit
from protoevfl.privacy.attacks.no_communication import k_labels
from protoevfl.privacy.learners import centroids, ridge, spread_labels
from protoevfl.privacy.view import Guess, Known, View


def model_completion(view: View, known: Known) -> dict[str, Guess]:
    """Guesses from the last embeddings, alone and with prototypes."""
    last = [f for p in view.parties if (f := view.last_embeddings(p)) is not None]
    if not last:
        return {}
    f = torch.cat(last, 1).float()
    own = unit(f - f.mean(0))
    guesses = {}
    if bool(known.mask.any()):
        named = k_labels(own, own, known, view.classes)
        guesses = {name.replace("k labels", "completion"): guess for name, guess in named.items()}
    return guesses | _with_prototypes(view, known)


def _with_prototypes(view: View, known: Known) -> dict[str, Guess]:
    last_releases = {r.party: r for r in view.releases()}  # the last of each party
    if len(last_releases) != 1:
        return {}
    release = next(iter(last_releases.values()))
    centre = release.f.mean(0)
    own = unit(release.f - centre)
    mu = unit(release.mu - centre)[release.present]
    names = torch.arange(view.classes, device=mu.device)[release.present]
    mask, labels = known.mask.to(own.device), known.labels.to(own.device)
    x, y = torch.cat([own[mask], mu]), torch.cat([labels[mask], names])
    spread = spread_labels(torch.cat([own, mu]), torch.cat([labels, names]), view.classes)
    scores = {
        "ridge": ridge(x, y, view.classes, own),
        "centroids": centroids(x, y, view.classes, own),
        "spreading": spread[: len(own)],
    }
    return {
        f"completion with prototypes, {name}": Guess(part.argmax(1))
        for name, part in scores.items()
    }
