"""How the classes of a pool are spread: requested shares, then whole rows that the data can give.

majority     k majority classes per party with Gamma_m rows for every row of a minority class. Half
             of the k are common to all parties where classes have the rows for that, the rest is
             each party's own: with k = 4 of 10 classes, four parties and Gamma = 12 this gives MID
             0.227 and WCS 0.83 (the paper: 0.232 and 0.80 to 0.84; k classes drawn at random for
             each party: 0.79 on average). Which classes is drawn, among those that have the rows.
             Two classes: every party's majority is the more frequent class, except the party with
             the smallest Gamma of every four, whose majority is the other one. The paper's WCS of
             Credit points to this, with nearly three times the rows at that party; pools here are
             equal, so its WCS is not reproduced.
exponential  Gamma_m ** (-rank / (Z - 1)), ranks drawn for each party.
balanced     the same number of rows of each class.
"""

import numpy as np

from protoevfl.errors import UserError
from protoevfl.rows.dataset import Array

PROFILES = ("majority", "exponential", "balanced")
NEARLY = 0.9  # a class with this share of the rows it needs may still be common to all parties


def shares(
    profile: str,
    gammas: list[float],
    majority: int,
    pool: int,
    caps: Array,
    rng: np.random.Generator,
) -> Array:
    """(M, Z) requested class shares; rows sum to one. `caps` (Z,) are the rows of each class there
    are to deal."""
    parties, classes = len(gammas), len(caps)
    if profile == "balanced":
        weights = np.ones((parties, classes))
    elif profile == "exponential":
        ranks = np.stack([rng.permutation(classes) for _ in gammas])  # (M, Z)
        weights = np.array(gammas)[:, None] ** (-ranks / (classes - 1))
    elif profile == "majority":
        weights = np.ones((parties, classes))
        for m, members in enumerate(_majority_classes(gammas, majority, pool, caps, rng)):
            weights[m, members] = gammas[m]
    else:
        raise UserError(f"unknown imbalance profile '{profile}'; there are {', '.join(PROFILES)}")
    normalised: Array = weights / weights.sum(axis=1, keepdims=True)
    return normalised


def _majority_classes(
    gammas: list[float], majority: int, pool: int, caps: Array, rng: np.random.Generator
) -> list[list[int]]:
    """The majority classes of each party, see the head of this file.

    >>> rng = np.random.default_rng(0)
    >>> _majority_classes([4.7, 8.2, 5.2, 3.5], 1, 5000, np.array([18000, 5000]), rng)
    [[0], [0], [0], [1]]
    """
    parties, classes = len(gammas), len(caps)
    if not 1 <= majority < classes:
        raise UserError(
            f"a party can have 1 to {classes - 1} majority classes of {classes}, not {majority}"
        )
    if classes == 2:
        usual, size = int(np.argmax(caps)), min(parties, 4)
        blocks = [range(start, start + size) for start in range(0, parties - size + 1, size)]
        flipped = {min(block, key=lambda m: gammas[m]) for block in blocks if size > 1}
        return [[1 - usual if m in flipped else usual] for m in range(parties)]
    # (M,) rows of a minority class
    minority = np.array([pool / (majority * g + classes - majority) for g in gammas])
    extra = (np.array(gammas) - 1) * minority  # (M,) rows more of a majority class
    room = caps - minority.sum()  # (Z,)
    order = rng.permutation(classes)
    rich = [int(z) for z in order if room[z] >= NEARLY * extra.sum()]
    common = rich[: majority // 2] if len(rich) >= majority // 2 else []
    room[common] = 0
    own = _own_classes(
        extra, majority - len(common), room, [int(z) for z in order if z not in common]
    )
    return [common + members for members in own]


def _own_classes(extra: Array, own: int, room: Array, order: list[int]) -> list[list[int]]:
    """`own` classes for each party, hungriest party first: a class that has the rows, least used,
    first in `order`."""
    used = dict.fromkeys(order, 0)
    chosen: list[list[int]] = [[] for _ in extra]
    for m in np.argsort(-extra, kind="stable"):
        for _ in range(own):
            open_classes = [z for z in order if z not in chosen[m]]
            able = [z for z in open_classes if room[z] >= extra[m]]
            z = min(able, key=used.__getitem__) if able else max(open_classes, key=room.__getitem__)
            chosen[m].append(z)
            used[z] += 1
            room[z] -= extra[m]
    return chosen


def nearest_counts(wanted: Array, pool: int, caps: Array) -> Array:
    """The whole numbers of rows nearest to the request that the data can give: (M, Z) int64.

    min KL(X | pool * wanted)  such that  sum_z X_mz = pool,  sum_m X_mz <= caps_z,  X_mz >= low_mz

    solved by alternating scaling (rows to their sum, over-full columns down to their cap). `low` is
    the party's rarest class in the request, or its part of a class with too few rows, and at least
    one row: so a scarce class loses its majorities first. Needs M * pool <= sum(caps), caps >= M
    and pool >= Z.

    >>> nearest_counts(np.array([[0.5, 0.5], [0.5, 0.5]]), 10, np.array([6, 99])).tolist()
    [[3, 7], [3, 7]]
    """
    parties, classes = wanted.shape
    rarest = pool * wanted.min(axis=1, keepdims=True)  # (M, 1)
    low: Array = 1 + np.floor(
        np.minimum(rarest - 1, (caps - parties) * rarest / rarest.sum()).clip(0)
    ).astype(np.int64)
    free, limit = pool - low.sum(axis=1), caps - low.sum(axis=0)  # (M,), (Z,)
    target = np.maximum(pool * wanted - low, 1e-3 * rarest)
    v = np.ones(classes)
    for _ in range(2000):
        u = free / (target @ v)  # (M,)
        new = np.clip(limit / np.maximum(u @ target, 1e-12), 1e-12, 1.0)
        done = np.abs(new - v).max() < 1e-10
        v = new
        if done:
            break
    exact = target * v * (free / (target @ v))[:, None]
    counts: Array = low + _whole(exact, free, limit)
    return counts


def _whole(exact: Array, total: Array, limit: Array) -> Array:
    """Rounds down, then hands the missing rows to the largest remainders whose column still has
    room."""
    counts = np.floor(exact + 1e-9).astype(np.int64)
    # rounding of a column that is just full
    while (excess := counts.sum(axis=0) - limit).max() > 0:
        z = int(np.argmax(excess))
        counts[int(np.argmax(counts[:, z])), z] -= 1
    lack = total - counts.sum(axis=1)  # (M,)
    room = limit - counts.sum(axis=0)  # (Z,)
    remainder = exact - counts
    while lack.any():
        open_cells = np.where((lack[:, None] > 0) & (room > 0), remainder, -np.inf)
        m, z = divmod(int(np.argmax(open_cells)), len(limit))
        counts[m, z] += 1
        lack[m] -= 1
        room[z] -= 1
        remainder[m, z] -= 1
    return counts
