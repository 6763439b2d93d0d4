"""What is asked of a split, and how many rows of each class go where (the rules are in
`splits.py`)."""

from dataclasses import dataclass

import numpy as np

from protoevfl.errors import UserError
from protoevfl.rows import profiles
from protoevfl.rows.dataset import Array

PROFILE = 1  # purpose of random draws
SETTINGS = ("normal", "few_shot", "zero_shot")
POOL_ROWS = {
    "fashion_mnist": 7000,
    "modelnet10": 700,
    "adult": 8000,
    "credit": 5000,
    "digits": 250,
    "digits_table": 250,
}
GAMMAS = {  # the paper's, parties 1 to 4; digits as Fashion-MNIST
    "fashion_mnist": (12.0, 11.5, 11.0, 10.0),
    "modelnet10": (12.0, 24.0, 6.0, 5.0),
    "adult": (9.5, 1.1, 8.5, 2.3),
    "credit": (4.7, 8.2, 5.2, 3.5),
    "digits": (12.0, 11.5, 11.0, 10.0),
    "digits_table": (12.0, 11.5, 11.0, 10.0),
}


@dataclass(frozen=True)
class SplitSpec:
    """What is asked for; None means the default of the data set."""

    dataset: str = "rows"  # a name with defaults, or any other name for own rows
    parties: int = 4  # M
    aligned: int = 200  # N_a, before few_shot and zero_shot take rows away
    pool: int | None = None  # N_u, rows per party; the default shrinks to what fits
    profile: str = "majority"
    # Gamma of parties 1, 2, ...; repeated when there are more parties
    gammas: tuple[float, ...] | None = None
    majority: int | None = None  # k majority classes a party; default 4 of 10, 1 of 2
    setting: str = "normal"
    classes: tuple[int, ...] = ()  # the rare or unseen classes
    shots: int = 5  # aligned rows of each rare class
    exact: bool = False  # refuse rather than adapt the profile
    overlap: int = 0  # further rows that the active party shares with each single other party


def check(spec: SplitSpec, frequency: Array) -> None:
    """Refuses a request that makes no sense, whatever the number of rows."""
    last = len(frequency) - 1
    if spec.setting not in SETTINGS:
        raise UserError(f"unknown setting '{spec.setting}'; there are {', '.join(SETTINGS)}")
    if spec.parties < 1:
        raise UserError(f"there must be at least one party, not {spec.parties}")
    if (frequency == 0).any():
        raise UserError(f"{spec.dataset}: class {int(np.argmin(frequency))} has no train row")
    if spec.setting == "normal" and spec.classes:
        raise UserError("classes are given but the setting is normal; choose few_shot or zero_shot")
    if spec.setting != "normal" and not spec.classes:
        raise UserError(f"setting {spec.setting} needs the classes it is about, for example 3")
    wrong = [z for z in spec.classes if not 0 <= z <= last]
    if wrong:
        raise UserError(f"class {wrong[0]} does not exist; {spec.dataset} has classes 0..{last}")
    if len(set(spec.classes)) != len(spec.classes) or len(spec.classes) > last:
        raise UserError(
            f"name each class once and leave at least one of {last + 1} classes as it is"
        )
    if spec.overlap < 0:
        raise UserError(f"the overlap is a number of rows, not {spec.overlap}")
    if spec.setting == "few_shot" and spec.shots < 1:
        raise UserError(
            f"few_shot keeps at least one row per class, not {spec.shots}; for none choose zero_shot"
        )


def aligned_counts(spec: SplitSpec, frequency: Array) -> Array:
    """(Z,) aligned rows of each class before the setting takes rows away (rule 1)."""
    caps, classes = frequency // 2, len(frequency)
    if not classes <= spec.aligned <= caps.sum():
        raise UserError(
            f"{spec.dataset} has {frequency.sum():,} train rows in {classes} classes: {classes} to "
            f"{caps.sum():,} aligned rows fit (at most half of a class), not {spec.aligned:,}"
        )
    rates = frequency / frequency.sum() if classes == 2 else np.full(classes, 1 / classes)
    counts: Array = np.minimum(np.maximum(np.floor(rates * spec.aligned).astype(np.int64), 1), caps)
    while (missing := spec.aligned - int(counts.sum())) > 0:
        below = counts < caps
        step = max(missing // int(below.sum()), 1)
        take = np.flatnonzero(below)
        take = take[np.argsort(-frequency[take], kind="stable")][:missing]
        counts[take] = np.minimum(counts[take] + step, caps[take])
    return counts


def kept_counts(spec: SplitSpec, aligned: Array) -> Array:
    """(Z,) aligned rows of each class after the setting took its rows away (rule 3)."""
    kept: Array = aligned.copy()
    chosen = list(spec.classes)
    if spec.setting == "zero_shot":
        kept[chosen] = 0
    if spec.setting == "few_shot":
        short = [z for z in chosen if aligned[z] < spec.shots]
        if short:
            raise UserError(
                f"few_shot with {spec.shots} rows: class {short[0]} has only {aligned[short[0]]} "
                f"aligned rows; ask for fewer rows or more than {spec.aligned} aligned ones"
            )
        kept[chosen] = spec.shots
    return kept


def pool_rows(spec: SplitSpec, left: Array) -> tuple[int, list[str]]:
    """Rows of each pool; a default that does not fit shrinks and says so, a request that does not
    is refused."""
    fits = int(left.sum()) // spec.parties
    what = f"{spec.dataset} has {left.sum():,} train rows beside {spec.aligned:,} aligned ones"
    if (left < spec.parties).any():
        z = int(np.argmin(left))
        raise UserError(
            f"{what}: class {z} has {left[z]} left, but each of {spec.parties} pools needs one"
        )
    if spec.pool is not None:
        if not len(left) <= spec.pool <= fits:
            raise UserError(
                f"{what}: {spec.parties} pools of {len(left)} to {fits:,} rows fit, not "
                f"{spec.pool:,}"
            )
        return spec.pool, []
    default = POOL_ROWS.get(spec.dataset, fits)
    if fits >= default:
        return default, []
    return fits, [f"note: {spec.parties} pools of {default:,} rows do not fit; {fits:,} rows each"]


def _wanted_shares(spec: SplitSpec, pool: int, left: Array, seed: int) -> Array:
    """(M, Z) class shares of the requested profile."""
    given = spec.gammas if spec.gammas else GAMMAS.get(spec.dataset, (10.0,))
    if min(given) < 1:
        raise UserError(f"Gamma is largest over smallest class and at least 1, not {min(given)}")
    gammas = [given[m % len(given)] for m in range(spec.parties)]
    majority = spec.majority or max(round(0.4 * len(left)), 1)
    rng = np.random.default_rng([seed, PROFILE])
    return profiles.shares(spec.profile, gammas, majority, pool, left, rng)


def pool_counts(spec: SplitSpec, pool: int, left: Array, seed: int) -> tuple[Array, list[str]]:
    """(M, Z) pool rows of each class (rule 2), and a note where the profile had to give way."""
    wanted = _wanted_shares(spec, pool, left, seed)
    counts = profiles.nearest_counts(wanted, pool, left)
    need = np.ceil(pool * wanted.sum(axis=0) - 1e-9).astype(np.int64)  # (Z,)
    short = [f"class {z} has {left[z]:,} of {need[z]:,}" for z in np.flatnonzero(need > left)]
    if not short:
        return counts, []
    text = f"rows left for the profile: {', '.join(short)}"
    fits = _exact_pool(spec, pool, left, seed)
    possible = fits >= len(left)  # a pool has a row of each class
    if spec.exact:
        instead = (
            f"{spec.parties} x {fits:,} do" if possible else "no smaller number was found that does"
        )
        raise UserError(
            f"{spec.dataset}: {spec.parties} x {pool:,} pool rows do not meet the profile exactly "
            f"({text}); {instead}"
        )
    met = (
        f"met exactly with {fits:,} rows per party"
        if possible
        else "no smaller number was found that meets it exactly"
    )
    return counts, [f"note: profile adapted, {text}; {met}"]


def _exact_pool(spec: SplitSpec, pool: int, left: Array, seed: int) -> int:
    """A number of pool rows, not above `pool`, for which the profile is met exactly."""
    while pool > 0:
        need = pool * _wanted_shares(spec, pool, left, seed).sum(axis=0)
        if (np.ceil(need - 1e-9) <= left).all():
            break
        pool = min(pool - 1, int((left / need).min() * pool))
    return pool
