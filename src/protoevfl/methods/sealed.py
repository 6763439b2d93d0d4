"""The sealed level: no row leaves anybody; a party sends one coarse score per class and row.

    1  owner -> party   the classes of the rows they share: randomised, then encrypted (SealedLabels)
    2  party -> owner   sums of its quantised features by class and fold, masked (SealedSums)
    3  owner -> party   the same, decrypted, still masked (OpenedSums)
    4  party            prototypes mu_z from the sums; direction w_z = (C + SHRINK I)^-1 (mu_z - mu),
                        C: covariance of all its own rows, which nobody else sees
                        audits itself and coarsens the score until no column can be rebuilt from it
                        beyond its bound, or refuses
    5  party -> owner   scores x . w, in steps (Embeddings)

A row of fold k is scored without the labels of fold k, a row to be predicted with all of them, so
the owner's model learns from honest scores. Two classes need one score: the direction from the
commoner to the rarer class.

A score of full precision is a fingerprint: a nearest-neighbour decoder reads most categories from
it (docs/notes/sealed.md). Cut into a few levels (two: one bit per partner and row) it still says
nearly as much about the class.

Everything that reaches a party may be made up: labels, sums, order of requests. Labels are summed
once in a party's life in a run, opened once, and all that the answers depend on is audited.
"""

import hashlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.messages import (
    MessageError,
    OpenedSums,
    OpenLabels,
    SealedLabels,
    SealedSums,
    values,
)
from protoevfl.method import Report
from protoevfl.privacy import encrypted_sums as sums_of
from protoevfl.privacy.gives_away import LEAST_ROWS, SelfAuditError, columns_of, gives_away

FOLDS = 5
CLIP = 4.0  # standard deviations
FLOOR = 0.05  # added to a feature's spread: rare categories do not weigh more for being rare
SHRINK = 3.0  # added to the eigenvalues of the covariance of standardised features
STEP = 2 * CLIP / ((1 << sums_of.LEVEL_BITS) - 1)  # of a quantised feature
SPREAD = 3.0  # of a score: beside the active party's standardised features it is shrunk less
# where a score is cut: at these quantiles of the party's own scores; nowhere; or into the two groups
# it falls into by itself (quantiles do better where there are several levels, groups with two)
NOWHERE: tuple[float, ...] = ()
GROUPS = (0.5,)  # where the search for two groups begins
CUTS = {0: NOWHERE, 4: (0.5, 0.75, 0.9), 3: (0.5, 0.8), 2: GROUPS}  # by the number of levels
# (levels of a score, 0 for any; share of scores replaced by a random one), from fine to coarse
GRAINS = (*((levels, 0.0) for levels in CUTS), *((2, flip) for flip in (0.05, 0.1, 0.2, 0.4)))
AUDITED = 20_000  # own rows on which a party measures what scores give away
MOST_PATTERNS = 64  # of what is sent, up to which the best decoder is known; else by experiment
LEAST_OF_VALUE = 10  # rows of a category's value under which it is not counted
PREFIX = "sealed."


@dataclass(frozen=True)
class SealedSettings:
    """The sealed level: what a party sends are scores, after it has audited itself."""

    levels: int = 4  # most values a score can take; 0: any
    most_of_number: float = 0.5  # R^2 of any number that may be rebuilt from what is sent
    most_of_category: float = 0.5  # of the way from chance to certainty, for any category

    def __post_init__(self) -> None:
        if self.levels not in CUTS:
            raise UserError(f"sealed.levels must be 0 (any value), 4, 3 or 2, not {self.levels}")
        if not (0 < self.most_of_number <= 1 and 0 < self.most_of_category <= 1):
            raise UserError(
                "sealed.most_of_number and sealed.most_of_category must lie above 0, at most 1"
            )


# ---------------------------------------------------------------- the party


@dataclass(frozen=True)
class PartyView:
    """What G parties have before them when they are asked to sum or to learn.

    rows     (G, n, ...) all own rows as they are
    own      (G, n, d) their features
    shared   (G, N, d) features of the rows shared with the active party: by all, then the further
    """

    cohort: Cohort
    rows: Tensor
    own: Tensor
    shared: Tensor

    def levels(self) -> Tensor:
        """Shared rows (G, N, d + 1) as whole numbers from 0; the last column of ones counts rows."""
        steps = ((standardised(self.cohort, self.shared) + CLIP) / STEP).round().long()
        return torch.cat([steps, torch.ones_like(steps[..., :1])], -1)


def standardised(cohort: Cohort, features: Tensor) -> Tensor:
    """(G, n, d) by the party's own rows, clipped."""
    mean, spread = (cohort.memory[f"{PREFIX}{name}"][:, None] for name in ("mean", "spread"))
    return ((features.double() - mean) / spread).clamp(-CLIP, CLIP)


def sum_under_encryption(view: PartyView, request: SealedLabels) -> SealedSums:
    """Step 2; the masks stay in the party's memory until the sums are opened."""
    cohort = view.cohort
    _begin(view)
    levels = view.levels()
    _check_rows(levels, request.labels)
    fold = _folds(levels)
    replies, masks = [], []
    for g in range(cohort.size):
        key = _key(request.key[g])
        key.check(sums_of.tensor_numbers(request.proof[g]))
        classes = request.present.shape[1]
        sums, mask = sums_of.sealed_sums(
            key, request.labels[g], levels[g].cpu(), fold.cpu(), FOLDS, classes, cohort.progress
        )
        replies.append(sums)
        masks.append(mask)
    cohort.memory |= {
        f"{PREFIX}masks": torch.stack(masks),
        f"{PREFIX}key": request.key,
        f"{PREFIX}present": request.present,
    }
    return SealedSums(torch.stack(replies))


def learn_opened(view: PartyView, request: OpenedSums, settings: SealedSettings) -> None:
    """Step 4 from what the owner decrypted."""
    memory = view.cohort.memory
    if f"{PREFIX}masks" not in memory:
        raise MessageError("opened sums without sealed ones before them")
    masks, keys, present = (memory.pop(f"{PREFIX}{name}") for name in ("masks", "key", "present"))
    if request.sums.shape != masks.shape:
        raise MessageError("opened sums of another shape than the sealed ones")
    levels = view.levels()
    fold = _folds(levels)
    classes = present.shape[1]
    sums = []
    for g in range(view.cohort.size):
        totals = sums_of.plain_sums(levels[g], torch.zeros_like(fold), fold, FOLDS, 1)[:, 0].cpu()
        opened = (request.sums[g].cpu(), masks[g].cpu())
        sums.append(sums_of.unmasked_sums(_key(keys[g]), *opened, totals, classes))
    _learn(view, torch.stack(sums).to(levels.device), present, settings)


def learn_plain(view: PartyView, request: OpenLabels, settings: SealedSettings) -> None:
    """Steps 2 to 4 without encryption: the same whole numbers, bit for bit."""
    _begin(view)
    levels = view.levels()
    _check_rows(levels, request.labels)
    fold = _folds(levels)
    classes = request.present.shape[1]
    sums = [
        sums_of.plain_sums(numbers, labels, fold, FOLDS, classes)
        for numbers, labels in zip(levels, request.labels, strict=True)
    ]
    _learn(view, torch.stack(sums), request.present, settings)


def shared_scores(view: PartyView) -> Tensor:
    """(G, N, K) of the shared rows, each by the direction that has not seen its label."""
    directions = view.cohort.memory[f"{PREFIX}directions"]
    z = standardised(view.cohort, view.shared)
    fold = _folds(view.shared)
    scores = z.new_zeros(*z.shape[:2], directions.shape[-1])
    for k in range(FOLDS):
        scores[:, fold == k] = z[:, fold == k] @ directions[:, k]
    return _leaving(view.cohort, scores, z)


def new_scores(cohort: Cohort, features: Tensor) -> Tensor:
    """(G, n, K) of features (G, n, d) of rows whose labels nobody has used."""
    z = standardised(cohort, features)
    return _leaving(cohort, z @ cohort.memory[f"{PREFIX}directions"][:, FOLDS], z)


def has_scores(cohort: Cohort) -> bool:
    return f"{PREFIX}directions" in cohort.memory


def _begin(view: PartyView) -> None:
    """The scale of the features, from the party's own rows; only once in a run."""
    memory = view.cohort.memory
    if f"{PREFIX}mean" in memory:
        raise MessageError("the labels of this run were summed already; that is done once")
    own = view.own.double()
    memory |= {f"{PREFIX}mean": own.mean(1), f"{PREFIX}spread": own.std(1) + FLOOR}


def _check_rows(levels: Tensor, labels: Tensor) -> None:
    if labels.shape[1] != levels.shape[1]:
        raise MessageError(f"{labels.shape[1]} labels for {levels.shape[1]} shared rows")


def _folds(rows: Tensor) -> Tensor:
    """The fold (N,) of each shared row (G, N, ...): by turns, so that both sides need no key."""
    return torch.arange(rows.shape[1], device=rows.device) % FOLDS


def _key(number: Tensor) -> sums_of.PublicKey:
    return sums_of.PublicKey(sums_of.tensor_numbers(number[None])[0])


def _learn(view: PartyView, sums: Tensor, present: Tensor, settings: SealedSettings) -> None:
    """Directions from sums (G, FOLDS, Z, d + 1), and the grain at which scores may leave."""
    own = standardised(view.cohort, view.own)
    centred = own - own.mean(1, keepdim=True)
    covariance = centred.mT @ centred / own.shape[1]  # (G, d, d)
    total = sums.sum(1, keepdim=True)
    contrasts = _contrasts(torch.cat([total - sums, total], 1), present)  # (G, FOLDS + 1, d, K)
    shrunken = covariance + SHRINK * torch.eye(own.shape[-1], dtype=own.dtype, device=own.device)
    directions = torch.linalg.solve(shrunken[:, None], contrasts)
    variance = (directions * (covariance[:, None] @ directions)).sum(2, keepdim=True)
    directions = SPREAD * directions / variance.sqrt().clamp(min=1e-9)
    salt = rnd.derive(view.cohort.keys, "sealed scores")
    grains = [
        _grain_of(view, own[g], directions[g], g, int(salt[g]), settings)
        for g in range(view.cohort.size)
    ]
    view.cohort.memory |= {
        f"{PREFIX}directions": directions,
        f"{PREFIX}salt": salt,
        f"{PREFIX}edges": _padded([grain.edges for grain in grains]),
        f"{PREFIX}levels": _padded([grain.levels for grain in grains]),
        f"{PREFIX}shares": _padded([grain.shares for grain in grains]),
        f"{PREFIX}flip": torch.tensor([grain.flip for grain in grains], dtype=torch.float64),
    }


def _padded(tensors: list[Tensor]) -> Tensor:
    """(K, L) each -> (G, K, largest L), NaN behind."""
    width = max(tensor.shape[1] for tensor in tensors)
    pad = torch.nn.functional.pad
    return torch.stack([pad(t, (0, width - t.shape[1]), value=torch.nan) for t in tensors])


def _contrasts(used: Tensor, present: Tensor) -> Tensor:
    """mu_z - mu (G, F, d, K) of sums used (G, F, Z, d + 1); 0 for a class that is not there."""
    counts = used[..., -1:].double()
    shown = (counts > 0) & (present > 0)[:, None, :, None]
    means = used[..., :-1].double() * STEP / counts.clamp(min=1) - CLIP
    if present.shape[1] > 2:
        centre = (means * shown).sum(2, keepdim=True) / shown.sum(2, keepdim=True).clamp(min=1)
        return torch.where(shown, means - centre, 0.0).mT
    rarer = counts[:, FOLDS, 1] <= counts[:, FOLDS, 0]  # (G, 1)
    sign = torch.where(rarer[:, None], 1.0, -1.0) * shown.all(2)  # (G, F, 1)
    return (sign * (means[:, :, 1] - means[:, :, 0]))[..., None]


# ---------------------------------------------------------------- the party's audit of itself


@dataclass(frozen=True)
class Grain:
    """What leaves of a score: the level it lies in; now and then, as a keyed hash of the row decides,
    one drawn from the party's own rows instead. The same row always gives the same answer, so asking
    again averages nothing out."""

    edges: Tensor  # (K, L - 1) rising
    levels: Tensor  # (K, L): mean of the party's own scores there; L = 0: the score itself
    shares: Tensor  # (K, L) of the party's own rows
    flip: float  # share of scores that are drawn
    salt: int

    @classmethod
    def of(cls, scores: Tensor, count: int, flip: float, salt: int) -> "Grain":
        """Levels of the party's own scores (n, K)."""
        own = _sample(scores)
        width = own.shape[1]
        if not CUTS[count]:
            nothing = own.new_zeros(width, 0)
            return cls(nothing, nothing, nothing, 0.0, salt)
        edges = torch.quantile(own, own.new_tensor(CUTS[count]), 0).T.contiguous()
        if CUTS[count] == GROUPS:
            edges = _between_groups(own, edges)
        place = _reached(own, edges)
        member = torch.nn.functional.one_hot(place, count).to(own)  # (n, K, L)
        shares = member.mean(0)
        levels = (member * own[..., None]).mean(0) / shares.clamp(min=1e-12)
        return cls(edges, levels, shares, flip, salt)

    def __call__(self, scores: Tensor, rows: Tensor) -> Tensor:
        """(n, K) of scores (n, K); rows (n, ...) are what the draw depends on."""
        if not self.levels.shape[1]:
            return scores
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


def _between_groups(scores: Tensor, edges: Tensor, turns: int = 50) -> Tensor:
    """Edges (K, 1) half way between the means of both sides: Lloyd's quantiser of scores (n, K)."""
    for _ in range(turns):
        above = (scores >= edges[:, 0]).to(scores)
        counts = above.sum(0)
        high = (scores * above).sum(0) / counts.clamp(min=1)
        low = (scores * (1 - above)).sum(0) / (len(scores) - counts).clamp(min=1)
        both = (counts > 0) & (counts < len(scores))
        edges = torch.where(both, (high + low) / 2, edges[:, 0])[:, None]
    return edges


def _row_uniforms(rows: Tensor, count: int, salt: int) -> Tensor:
    """(n, count) in [0, 1): a keyed hash of each row's values."""
    key = salt.to_bytes(8, "big", signed=True)
    plain = rows.detach().cpu().float().flatten(1).contiguous().numpy()
    draws = b"".join(hashlib.shake_256(key + row.tobytes()).digest(4 * count) for row in plain)
    words = np.frombuffer(draws, "<u4").astype(np.float64) / 2.0**32
    return torch.from_numpy(words).view(len(rows), count)


def _sample(rows: Tensor, most: int = 100_000) -> Tensor:
    """At most so many of the rows (n, ...), evenly spread."""
    places = torch.linspace(0, len(rows) - 1, min(len(rows), most), device=rows.device)
    return rows[places.round().long()]


def _leaving(cohort: Cohort, scores: Tensor, features: Tensor) -> Tensor:
    """What leaves of scores (G, n, K) of rows with features (G, n, d)."""
    memory = cohort.memory
    names = ("edges", "levels", "shares", "flip", "salt")
    sent = []
    for g in range(cohort.size):
        edges, levels, shares, flip, salt = (memory[f"{PREFIX}{name}"][g] for name in names)
        count = int((~levels[0].isnan()).sum())  # the rest is padding
        parts = (edges[:, : max(0, count - 1)], levels[:, :count], shares[:, :count])
        grain = Grain(*parts, float(flip), int(salt))
        sent.append(grain(scores[g], features[g]))
    return torch.stack(sent).float()


def _grain_of(
    view: PartyView,
    own: Tensor,
    directions: Tensor,
    g: int,
    salt: int,
    settings: SealedSettings,
) -> Grain:
    """The finest grain at which no direction (FOLDS + 1, d, K) gives away more of a column than the
    bounds allow; every direction is tried, because made-up sums may steer a single one."""
    table = view.cohort.rows
    places = torch.linspace(0, len(own) - 1, min(len(own), AUDITED)).round().long().to(own.device)
    columns = columns_of(view.rows[g][places], table.spans, table.numbers)
    tried = own[places]
    finest = [levels for levels, _ in GRAINS].index(settings.levels)
    worst = (0.0, "")
    for count, flip in GRAINS[finest:]:
        grain = Grain.of(own @ directions[FOLDS], count, flip, salt)
        bounds = (settings.most_of_number, settings.most_of_category)
        worst = max(_worst(columns, grain(tried @ w, tried), *bounds) for w in directions)
        if worst[0] <= 1:
            return grain
    raise SelfAuditError(
        f"even the coarsest scores would give away '{worst[1]}', {worst[0]:.1f} times what the "
        f"bounds allow (sealed.most_of_number = {settings.most_of_number:g}, "
        f"sealed.most_of_category = {settings.most_of_category:g}); nothing is sent"
    )


def _worst(
    columns: dict[str, Tensor], sent: Tensor, of_number: float, of_category: float
) -> tuple[float, str]:
    """The column given away most, as a multiple of its bound."""
    if len(sent) < LEAST_ROWS:
        raise SelfAuditError(
            f"{len(sent)} own rows are too few to measure what scores would give away; nothing is "
            "sent"
        )
    patterns, place = torch.unique(sent, dim=0, return_inverse=True)
    if len(patterns) <= MOST_PATTERNS:
        scores = {name: best_guess(column, place) for name, column in columns.items()}
    else:
        scores = gives_away(columns, sent)
    shares = []
    for name, column in columns.items():
        bound = of_number if column.is_floating_point() else of_category
        shares.append((scores[name] / bound, name))
    return max(shares)


def best_guess(column: Tensor, place: Tensor) -> float:
    """What the best of all decoders rebuilds of a column where only `place` (n,), one of a few
    patterns, is sent: the mean of each pattern, or the value that has the largest share of its rows
    there. R^2, or the way from chance to certainty; pixels (n, p) together."""
    count = int(place.max()) + 1
    if not column.is_floating_point():
        codes = torch.unique(column, return_inverse=True)[1]
        table = torch.bincount(codes * count + place, minlength=count * (int(codes.max()) + 1))
        table = table.view(-1, count).double()  # values x patterns
        often = table[table.sum(1) >= LEAST_OF_VALUE]
        if len(often) < 2:
            return 0.0
        recall = (often / often.sum(1, keepdim=True)).amax(0).sum() / len(often)
        return float((recall - 1 / len(often)) / (1 - 1 / len(often)))
    x = column.double().reshape(len(column), -1)
    total = (x - x.mean(0)).square().sum()
    if total <= 1e-9 * len(x):
        return 0.0
    sums = x.new_zeros(count, x.shape[1]).index_add(0, place, x)
    means = sums / torch.bincount(place, minlength=count)[:, None]
    return float(1 - (x - means[place]).square().sum() / total)


# ---------------------------------------------------------------- the owner


def ask_for_scores(owner: LabelOwner) -> Generator[Any, Any, dict[int, Tensor]]:
    """Steps 1 to 5 with every other party: {party: (N_m, K)} scores of the rows shared with it.

    The requests hold the labels; the owner's guard (privacy/policy.py) randomises them, encrypts
    them and decrypts what comes back, so that nothing else can leave.
    """
    replies = yield {m: OpenLabels(*_shared_labels(owner, m)) for m in owner.parties[1:]}
    yield Report("sums", 1, 1)
    opened = {m: reply for m, reply in replies.items() if isinstance(reply, OpenedSums)}
    if opened:
        scored = yield opened
        replies = {**{m: r for m, r in replies.items() if m not in opened}, **scored}
    yield Report("scores", 1, 1)
    scores = {m: values(reply).to(owner.device) for m, reply in replies.items()}
    for m, sent in scores.items():
        rows = len(_shared_labels(owner, m)[0])
        if len(sent) != rows:
            raise MessageError(f"party {m} sent {len(sent)} scores for {rows} rows")
    return scores


def _shared_labels(owner: LabelOwner, party: int) -> tuple[Tensor, Tensor, Tensor]:
    """Places, labels and present classes of the rows shared with a party."""
    count = len(owner.labels)
    rows = torch.arange(count, device=owner.device)
    labels = owner.labels
    if owner.further is not None:
        held = owner.further.shared[party].nonzero()[:, 0]
        rows = torch.cat([rows, count + held])
        labels = torch.cat([labels, owner.further.labels[held]])
    counts = torch.bincount(labels, minlength=owner.classes)
    return rows, labels, (counts > 0).float()
