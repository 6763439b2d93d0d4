"""How a sealed score leaves its party: in a few steps, now and then one drawn at random, or exact with
noise, and where it may be cut (CUTS, at quantiles of the party's own scores).

    tables     the mean of the party's own scores between two cuts
    pictures   s + a sigma_s xi, xi normal by a keyed hash of the row

Which of it leaves so little of the columns that it may be sent is chosen in `sealed_choice.py`.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protoevfl.errors import UserError

# quantiles of the party's own scores where a score is cut
NOWHERE: tuple[float, ...] = ()
GROUPS = (-1.0,)  # no quantile: into the two groups that the scores fall into by themselves
CUTS: tuple[tuple[float, ...], ...] = (
    NOWHERE,
    (0.4, 0.65, 0.8, 0.92),
    (0.5, 0.75, 0.9),
    (0.6, 0.9),
    (0.5, 0.85),
    (0.85,),
    GROUPS,
)
ANY_LEVEL = 0  # a score that is cut nowhere
MOST_LEVELS = max(len(cuts) for cuts in CUTS) + 1


@dataclass(frozen=True)
class SealedSettings:
    """The sealed level: what a party sends are scores, after it has audited itself."""

    levels: int = MOST_LEVELS  # most values a score can take; 0: any
    most_of_number: float = 0.3  # R^2 of any number that may be rebuilt from what is sent
    most_of_category: float = 0.5  # of the way from chance to certainty, for any category

    def __post_init__(self) -> None:
        if self.levels != ANY_LEVEL and not 2 <= self.levels <= MOST_LEVELS:
            raise UserError(
                f"sealed.levels must be 0 (any value) or 2 to {MOST_LEVELS}, not {self.levels}"
            )
        if not (0 < self.most_of_number <= 1 and 0 < self.most_of_category <= 1):
            raise UserError(
                "sealed.most_of_number and sealed.most_of_category must lie above 0, at most 1"
            )

    @property
    def cuts(self) -> list[tuple[float, ...]]:
        """From fine to coarse."""
        if self.levels == ANY_LEVEL:
            return list(CUTS)
        return [cuts for cuts in CUTS if cuts and len(cuts) < self.levels]


@dataclass(frozen=True)
class Grain:
    """What leaves of a score: the level it lies in; now and then, as a keyed hash of the row decides,
    one drawn from the party's own rows instead. Or the score itself with noise of that hash. The same
    row always gives the same answer, so asking again averages nothing out."""

    edges: Tensor  # (K, L - 1) rising
    levels: Tensor  # (K, L): mean of the party's own scores there; L = 0: the score itself
    shares: Tensor  # (K, L) of the party's own rows
    flip: float  # share of scores that are drawn
    salt: int
    # (K,) standard deviation of what is added to a score that is not cut
    noise: Tensor | None = None

    @classmethod
    def of(cls, scores: Tensor, cuts: tuple[float, ...], flip: float, salt: int) -> "Grain":
        """Levels of the party's own scores (n, K), cut at these quantiles."""
        own = _sample(scores)
        width = own.shape[1]
        if not cuts:
            nothing = own.new_zeros(width, 0)
            return cls(nothing, nothing, nothing, 0.0, salt)
        if cuts == GROUPS:
            edges = _between_groups(own)
        else:
            edges = torch.quantile(own, own.new_tensor(cuts), 0).T.contiguous()
        edges = _off_scores(own, edges)
        place = _reached(own, edges)
        member = torch.nn.functional.one_hot(place, len(cuts) + 1).to(own)  # (n, K, L)
        shares = member.mean(0)
        levels = (member * own[..., None]).mean(0) / shares.clamp(min=1e-12)
        return cls(edges, levels, shares, flip, salt)

    def __call__(self, scores: Tensor, rows: Tensor) -> Tensor:
        """(n, K) of scores (n, K); rows (n, ...) are what draw and noise depend on."""
        if not self.levels.shape[1]:
            if self.noise is None:
                return scores
            return scores + self.noise * _row_normals(rows, scores.shape[1], self.salt).to(scores)
        place = _reached(scores, self.edges)
        if self.flip:
            uniform = _row_uniforms(rows, 2 * scores.shape[1], self.salt).to(scores)
            chance, which = uniform.chunk(2, 1)
            drawn = _reached(which, self.shares.cumsum(1)[:, :-1])
            place = torch.where(chance < self.flip, drawn, place)
        return self.levels.T.gather(0, place)


def _reached(numbers: Tensor, edges: Tensor) -> Tensor:
    """(n, K), (K, E) -> (n, K): how many edges a number reaches."""
    return (numbers[..., None] >= edges).sum(-1)


def _off_scores(scores: Tensor, edges: Tensor) -> Tensor:
    """Edges (K, E) half way between the own scores (n, K) on both sides of them.

    Rows of the same bins have the same score but for rounding, which differs with how many rows are
    computed at once: an edge on such a score would answer the same row in two ways.
    """
    spread = scores.amax(0) - scores.amin(0)
    just_below = edges - 1e-4 * spread[:, None]
    reached = scores[..., None] >= just_below  # (n, K, E)
    above = torch.where(reached, scores[..., None], torch.inf).amin(0)
    below = torch.where(reached, -torch.inf, scores[..., None]).amax(0)
    between = (above + below) / 2
    return torch.where(between.isfinite(), between, just_below)


def _between_groups(scores: Tensor, turns: int = 50) -> Tensor:
    """Edges (K, 1) half way between the means of both sides: Lloyd's quantiser of scores (n, K)."""
    edges = scores.mean(0)
    for _ in range(turns):
        above = (scores >= edges).to(scores)
        counts = above.sum(0)
        high = (scores * above).sum(0) / counts.clamp(min=1)
        low = (scores * (1 - above)).sum(0) / (len(scores) - counts).clamp(min=1)
        both = (counts > 0) & (counts < len(scores))
        edges = torch.where(both, (high + low) / 2, edges)
    return edges[:, None]


def _row_uniforms(rows: Tensor, count: int, salt: int) -> Tensor:
    """(n, count) in [0, 1): a keyed hash of each row's values."""
    key = salt.to_bytes(8, "big", signed=True)
    plain = rows.detach().cpu().float().flatten(1).contiguous().numpy()
    draws = b"".join(hashlib.shake_256(key + row.tobytes()).digest(4 * count) for row in plain)
    words = np.frombuffer(draws, "<u4").astype(np.float64) / 2.0**32
    return torch.from_numpy(words).view(len(rows), count)


def _row_normals(rows: Tensor, count: int, salt: int) -> Tensor:
    """(n, count) of a standard normal distribution, by the same hash."""
    middle = 0.5 / 2.0**32  # of the step between two uniforms: neither 0 nor 1, which are infinite
    normals: Tensor = torch.special.ndtri(_row_uniforms(rows, count, salt) + middle)
    return normals


def _sample(rows: Tensor, most: int = 100_000) -> Tensor:
    """At most so many of the rows (n, ...), evenly spread."""
    places = torch.linspace(0, len(rows) - 1, min(len(rows), most), device=rows.device)
    return rows[places.round().long()]
