"""Attackers that received nothing: the yardstick. What they get is not a leak of the protocol.

majority    everybody is of the commonest class (taken to be known)
k-means     groups of the attacker's own rows, named by the best matching (an oracle: an upper bound)
k labels    ridge, centroids, label spreading and pseudo-labels on the own self-supervised embeddings
"""

import torch
from torch import Tensor

from protoevfl.core.transport import unit
from protoevfl.privacy.learners import centroids, kmeans, lloyd, ridge, spread_labels
from protoevfl.privacy.view import Guess, Known, View, best_own


def majority(labels: Tensor) -> Guess:
    """The commonest class for all; the only attacker handed the truth, because class rates are
    often public."""
    return Guess(torch.full_like(labels, int(labels.mode().values)))


def no_communication(view: View, known: Known) -> dict[str, Guess]:
    """All attackers but `majority`, on the attacker's own rows alone."""
    own = unit(_standard(best_own(view)))
    pool = _own_pool(view)
    everything = own if pool is None else torch.cat([own, pool])
    guesses = {
        "k-means": Guess(torch.cdist(own, kmeans(everything, view.classes)).argmin(1), named=False)
    }
    if bool(known.mask.any()):
        guesses |= k_labels(own, everything, known, view.classes)
    if view.wide:
        guesses |= _all_layers(
            torch.cat([view.wide[p] for p in sorted(view.wide)], 1), known, view.classes
        )
    return guesses


def _all_layers(wide: Tensor, known: Known, classes: int) -> dict[str, Guess]:
    """The same on all layers of the encoder (N, D)."""
    x = unit(_standard(wide))
    guesses = {"k-means": Guess(torch.cdist(x, kmeans(x, classes)).argmin(1), named=False)}
    if bool(known.mask.any()):
        guesses |= k_labels(x, x, known, classes)
    return {f"{name}, all layers": guess for name, guess in guesses.items()}


def k_labels(own: Tensor, everything: Tensor, known: Known, classes: int) -> dict[str, Guess]:
    """Classifiers from the known labels; `everything` starts with the aligned rows `own` (N, d)."""
    mask = known.mask.to(own.device)
    labels = known.labels.to(own.device)
    x, y = own[mask], labels[mask]
    unknown = labels.new_full((len(everything) - len(own),), -1)
    return {
        "k labels, ridge": Guess(ridge(x, y, classes, own).argmax(1)),
        "k labels, centroids": Guess(centroids(x, y, classes, own).argmax(1)),
        "k labels, spreading": Guess(
            spread_labels(everything, torch.cat([labels, unknown]), classes)[: len(own)].argmax(1)
        ),
        "k labels, named k-means": Guess(_named_groups(x, y, classes, own, everything)),
        "k labels, k-means from centroids": Guess(_from_centroids(x, y, classes, own, everything)),
    }


def _named_groups(x: Tensor, y: Tensor, classes: int, own: Tensor, everything: Tensor) -> Tensor:
    """k-means groups, each given the name of a class by the best one-to-one matching with the known
    rows."""
    from scipy.optimize import linear_sum_assignment

    centres = unit(kmeans(everything, classes))
    member = torch.nn.functional.one_hot(y, classes).to(x)
    rows, columns = linear_sum_assignment(
        (centres @ unit(member.T @ x).T).cpu().numpy(), maximize=True
    )
    names = torch.empty(classes, dtype=torch.int64)
    names[torch.from_numpy(rows)] = torch.from_numpy(columns)
    return names.to(own.device)[(own @ centres.T).argmax(1)]


def _from_centroids(x: Tensor, y: Tensor, classes: int, own: Tensor, everything: Tensor) -> Tensor:
    start = torch.stack(
        [x[y == z].mean(0) if bool((y == z).any()) else everything.mean(0) for z in range(classes)]
    )
    return torch.cdist(own, unit(start + unit(lloyd(everything, unit(start), 3)))).argmin(1)


def _standard(x: Tensor) -> Tensor:
    return x.float() - x.float().mean(0)


def _own_pool(view: View) -> Tensor | None:
    """The pool in the same space; colluding parties' pools hold different people and are of no
    joint use."""
    if len(view.pool) != 1 or len(view.own) != 1:
        return None
    (party, pool), own = next(iter(view.pool.items())), next(iter(view.own.values()))
    return unit(pool.float() - own.float().mean(0)) if party in view.own else None
