"""The sealed level: no row leaves anybody; a party sends one coarse score per class and row.

    1  owner -> party   the classes of the rows they share: randomised, then encrypted (SealedLabels)
    2  party -> owner   sums of its whole-number features by class and fold, masked (SealedSums)
    3  owner -> party   the same, decrypted, still masked, with the owner's noise (OpenedSums)
    4  party            prototypes mu_z from the sums; direction w_z = (C + SHRINK I)^-1 (mu_z - mu),
                        C: covariance of all its own rows, which nobody else sees
                        audits itself: turns the direction away from columns and coarsens the score
                        until none can be rebuilt beyond its bound (sealed_choice.py), or refuses
    5  party -> owner   scores x . w, in steps (Embeddings)

The owner's model must learn from scores that do not contain the row's own label. Of exact sums a
row of fold k is scored without the labels of fold k, a row to be predicted with all of them. Noisy
sums are made of all shared rows at once (privacy/summed_rows.py), because noise for every fold would
cost more than folds are worth: there scores are in units of what a row's own label adds to them on
average, and the owner, who knows the labels that were summed, takes it off.

Two classes need one score: the direction from the commoner to the rarer class. An image's layers
have scores of their own, and so have all of them together: which one to believe is then learnt from
exact labels.

A score of full precision is a fingerprint: a nearest-neighbour decoder reads most categories from
it (docs/notes/sealed.md). Cut into a few levels (two: one bit per partner and row) it still says
nearly as much about the class.

Everything that reaches a party may be made up: labels, sums, order of requests. Labels are summed
once in a party's life in a run, opened once, and all that the answers depend on is audited.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core import random as rnd
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
from protoevfl.methods.sealed_choice import AUDITED, Aim, Candidate, choose, with_spread
from protoevfl.methods.sealed_grain import MOST_LEVELS, Grain, SealedSettings
from protoevfl.privacy import encrypted_sums as sums_of
from protoevfl.privacy.gives_away import columns_of
from protoevfl.privacy.policy import SUMMED
from protoevfl.privacy.summed_rows import Scale, covariance, folds_at, shrunken

SPREAD = 3.0  # of a score: beside the active party's standardised features it is shrunk less
LEAST_STEP = 0.1  # of the spread: less is too little to see which level a score reaches
PREFIX = "sealed."
UNIT = "scores.unit"  # of the owner: what scores of each party (M, K) are multiplied with
SCALE = ("mean", "spread", "root", "length", "sigma")  # the last three where the sums are noisy


# ---------------------------------------------------------------- the party


@dataclass(frozen=True)
class PartyView:
    """What G parties have before them when they are asked to sum or to learn.

    rows     (G, n, ...) all own rows as they are
    own      (G, n, d) their features
    shared   (G, N, d) features of the rows shared with the active party: by all, then the further
    plain    (G, N, ...) the same rows as they are
    blocks   [start, end) of features that have scores of their own: an image's layers, and all of
             them; () for one score of all features
    """

    cohort: Cohort
    rows: Tensor
    own: Tensor
    shared: Tensor
    plain: Tensor
    blocks: tuple[tuple[int, int], ...] = ()

    def levels(self) -> Tensor:
        """Shared rows (G, N, d + 1) as whole numbers; the last column counts rows."""
        pairs = zip(_scales(self.cohort), self.shared, strict=True)
        return torch.stack([scale.levels(rows) for scale, rows in pairs])


def standardised(cohort: Cohort, features: Tensor) -> Tensor:
    """(G, n, d) by the party's own rows, clipped."""
    pairs = zip(_scales(cohort), features, strict=True)
    return torch.stack([scale.standardised(rows) for scale, rows in pairs])


def _scales(cohort: Cohort) -> list[Scale]:
    """Of each member."""
    kept = [cohort.memory.get(f"{PREFIX}{name}") for name in SCALE]
    return [Scale(*(None if t is None else t[g] for t in kept)) for g in range(cohort.size)]  # type: ignore[arg-type]


def sum_under_encryption(view: PartyView, request: SealedLabels) -> SealedSums:
    """Step 2; the masks stay in the party's memory until the sums are opened."""
    cohort = view.cohort
    _begin(view, request.sigma)
    levels = view.levels()
    _check_rows(levels, request.labels)
    folds = folds_at(request.sigma)
    fold = _turns(levels, folds)
    replies, masks = [], []
    for g in range(cohort.size):
        key = _key(request.key[g])
        key.check(sums_of.tensor_numbers(request.proof[g]))
        classes = request.present.shape[1]
        sums, mask = sums_of.sealed_sums(
            key, request.labels[g], levels[g].cpu(), fold.cpu(), folds, classes, cohort.progress
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
    folds = masks.shape[1]
    fold = _turns(levels, folds)
    classes = present.shape[1]
    largest = levels.shape[1] * sums_of.LARGEST
    sums = []
    for g in range(view.cohort.size):
        totals = sums_of.plain_sums(levels[g], torch.zeros_like(fold), fold, folds, 1)[:, 0].cpu()
        opened = (request.sums[g].cpu(), masks[g].cpu())
        sums.append(sums_of.unmasked_sums(_key(keys[g]), *opened, totals, classes, largest))
    _learn(view, torch.stack(sums).to(levels.device), present, settings)


def learn_plain(view: PartyView, request: OpenLabels, settings: SealedSettings) -> None:
    """Steps 2 to 4 without encryption: the same whole numbers, bit for bit."""
    _begin(view, request.sigma)
    levels = view.levels()
    _check_rows(levels, request.labels)
    folds = folds_at(request.sigma)
    fold = _turns(levels, folds)
    classes = request.present.shape[1]
    sums = [
        sums_of.plain_sums(numbers, labels, fold, folds, classes)
        for numbers, labels in zip(levels, request.labels, strict=True)
    ]
    if request.sigma:
        secret = bytes.fromhex(request.noise)
        sums = [sums_of.with_noise(plain, secret, request.sigma) for plain in sums]
    _learn(view, torch.stack(sums), request.present, settings)


def shared_scores(view: PartyView) -> Tensor:
    """(G, N, K) of the shared rows, each by the direction that has not seen its label."""
    directions = view.cohort.memory[f"{PREFIX}directions"]
    z = standardised(view.cohort, view.shared)
    folds = max(1, directions.shape[1] - 1)
    fold = _turns(view.shared, folds)
    scores = z.new_zeros(*z.shape[:2], directions.shape[-1])
    for k in range(folds):
        scores[:, fold == k] = z[:, fold == k] @ directions[:, k]
    return _leaving(view.cohort, scores, z, view.plain)


def new_scores(cohort: Cohort, features: Tensor, rows: Tensor) -> Tensor:
    """(G, n, K) of features (G, n, d) of rows (G, n, ...) whose labels nobody has used."""
    z = standardised(cohort, features)
    return _leaving(cohort, z @ cohort.memory[f"{PREFIX}directions"][:, -1], z, rows)


def has_scores(cohort: Cohort) -> bool:
    return f"{PREFIX}directions" in cohort.memory


def _begin(view: PartyView, sigma: float) -> None:
    """The scale of the features, from the party's own rows; only once in a run."""
    memory = view.cohort.memory
    if f"{PREFIX}mean" in memory:
        raise MessageError("the labels of this run were summed already; that is done once")
    scales = [Scale.of(own, sigma) for own in view.own]
    for name in SCALE if sigma else SCALE[:2]:
        memory[f"{PREFIX}{name}"] = torch.stack([getattr(scale, name) for scale in scales])


def _check_rows(levels: Tensor, labels: Tensor) -> None:
    if labels.shape[1] != levels.shape[1]:
        raise MessageError(f"{labels.shape[1]} labels for {levels.shape[1]} shared rows")


def _turns(rows: Tensor, folds: int) -> Tensor:
    """The fold (N,) of each shared row (G, N, ...): by turns, so that both sides need no key."""
    return torch.arange(rows.shape[1], device=rows.device) % folds


def _key(number: Tensor) -> sums_of.PublicKey:
    return sums_of.PublicKey(sums_of.tensor_numbers(number[None])[0])


def _learn(view: PartyView, sums: Tensor, present: Tensor, settings: SealedSettings) -> None:
    """Directions from sums (G, folds, Z, d + 1), and the grain at which scores may leave."""
    own = standardised(view.cohort, view.own)
    if sums.shape[1] > 1:
        total = sums.sum(1, keepdim=True)
        sums = torch.cat([total - sums, total], 1)  # without each fold, and with all
    scales = _scales(view.cohort)
    for name in SCALE[2:]:  # for the sums only
        view.cohort.memory.pop(f"{PREFIX}{name}", None)
    salt = rnd.derive(view.cohort.keys, "sealed scores")
    table = view.cohort.rows
    chosen, units = [], []
    for g in range(view.cohort.size):
        columns = columns_of(view.rows[g], table.spans, table.numbers)
        spread = covariance(own[g])
        noisy = scales[g].root is not None
        means, counts = scales[g].means(sums[g])
        contrasts = _contrasts(means, counts, present[g])  # (F, d, K)
        if noisy:
            per_label = _per_label(counts[-1, :, 0])
            believed = scales[g].believed(contrasts[-1], per_label)
            contrasts = believed @ contrasts
        aim = None
        if table.spans is not None and contrasts.shape[-1] == 1:
            aim = Aim(shrunken(spread), contrasts, spread, own[g], columns, SPREAD)
        plain = _directions(shrunken(spread), contrasts, view.blocks)
        unpushed = with_spread(plain, spread, SPREAD)
        found = choose(own[g], columns, unpushed, aim, int(salt[g]), settings)
        chosen.append(found)
        if noisy:
            part = believed @ scales[g].own_part(own[g]).T @ own[g] / len(own[g])
            turned = _directions(shrunken(spread), part[None], view.blocks)
            if aim is not None:
                plain, turned = (aim.turned(x, found.strength) for x in (plain, turned))
            added = _own_label(found.directions[-1], plain[-1], turned[0], per_label)
            sign = _sign(counts[-1, :, 0]) if len(present[g]) == 2 else 1.0
            units.append(sign * _unit(found, own[g], added))
    grains = [found.grain for found in chosen]
    view.cohort.memory |= {
        f"{PREFIX}directions": torch.stack([found.directions for found in chosen]),
        f"{PREFIX}salt": salt,
        f"{PREFIX}edges": _padded([grain.edges for grain in grains], MOST_LEVELS - 1),
        f"{PREFIX}levels": _padded([grain.levels for grain in grains], MOST_LEVELS),
        f"{PREFIX}shares": _padded([grain.shares for grain in grains], MOST_LEVELS),
        f"{PREFIX}flip": torch.tensor([grain.flip for grain in grains], dtype=torch.float64),
    }
    noises = [grain.noise for grain in grains if grain.noise is not None]
    if noises:  # all are pictures, or none is
        view.cohort.memory[f"{PREFIX}noise"] = torch.stack(noises)
    if units:
        view.cohort.memory[f"{PREFIX}unit"] = torch.stack(units)


def _directions(shrunken: Tensor, contrasts: Tensor, blocks: tuple[tuple[int, int], ...]) -> Tensor:
    """(F, d, blocks K) of contrasts (F, d, K): those of a block are 0 outside it."""
    parts = []
    for start, end in blocks or ((0, len(shrunken)),):
        inside = torch.zeros_like(contrasts)
        block = contrasts[:, start:end]
        inside[:, start:end] = torch.linalg.solve(shrunken[start:end, start:end], block)
        parts.append(inside)
    return torch.cat(parts, -1)


def _per_label(counts: Tensor) -> Tensor:
    """How far a label moves contrasts (K,) of classes (Z,) of so many rows, in rows."""
    return (1 / counts).sum()[None] if len(counts) == 2 else 1 / counts


def _own_label(direction: Tensor, plain: Tensor, turned: Tensor, per_label: Tensor) -> Tensor:
    """What a row's own label adds to its score (K,), on average, before the score is cut.

    direction   (d, K) as it is used
    plain       (d, K) the same before it was brought to its spread
    turned      (d, blocks d) what plain would be if the contrasts (d, d) were the mean of a row's part
                of the sums times the row: their trace is the mean score
    """
    width = len(plain)
    mean = turned.view(width, -1, width).diagonal(dim1=0, dim2=2).sum(-1)  # (blocks,)
    spread = (direction * plain).sum(0) / plain.square().sum(0).clamp(min=1e-12)
    added: Tensor = spread * (mean[:, None] * per_label).flatten()
    return added


def _unit(found: Candidate, own: Tensor, added: Tensor) -> Tensor:
    """What scores (K,) are multiplied with so that a row's own label adds 1, on average over own rows
    (n, d)."""
    places = torch.linspace(0, len(own) - 1, min(len(own), AUDITED)).round().long().to(own.device)
    rows = own[places]
    scores = rows @ found.directions[-1]
    step = added.clamp(min=LEAST_STEP * SPREAD)
    grown = (found.grain(scores, rows) - found.grain(scores - step, rows)).mean(0)
    return 1 / (grown * added / step).clamp(min=1e-6)


def _padded(tensors: list[Tensor], width: int) -> Tensor:
    """(K, L) each -> (G, K, width), NaN behind: of one shape, whoever else is asked with a member."""
    pad = torch.nn.functional.pad
    return torch.stack([pad(t, (0, width - t.shape[1]), value=torch.nan) for t in tensors])


def _contrasts(means: Tensor, counts: Tensor, present: Tensor) -> Tensor:
    """mu_z - mu (F, d, K) of class means (F, Z, d) of `counts` (F, Z, 1) rows; 0 for a class that is
    not there."""
    shown = (counts > 0) & (present > 0)[:, None]
    if len(present) > 2:
        centre = (means * shown).sum(1, keepdim=True) / shown.sum(1, keepdim=True).clamp(min=1)
        return torch.where(shown, means - centre, 0.0).mT
    return (_sign(counts[-1, :, 0]) * shown.all(1) * (means[:, 1] - means[:, 0]))[..., None]


def _sign(counts: Tensor) -> float:
    """Of the contrast of two classes: from the commoner to the rarer."""
    return 1.0 if counts[1] <= counts[0] else -1.0


def _leaving(cohort: Cohort, scores: Tensor, features: Tensor, rows: Tensor) -> Tensor:
    """What leaves of scores (G, n, K) of rows (G, n, ...) with features (G, n, d).

    Draws and noise are a hash of a row. A network's features are rounded differently in another batch,
    which would give new noise, and noise that is new averages out: of a picture it is its pixels.
    """
    memory = cohort.memory
    hashed = features if cohort.rows.spans is not None else rows
    noise = memory.get(f"{PREFIX}noise")
    names = ("edges", "levels", "shares", "flip", "salt")
    sent = []
    for g in range(cohort.size):
        edges, levels, shares, flip, salt = (memory[f"{PREFIX}{name}"][g] for name in names)
        count = int((~levels[0].isnan()).sum())  # the rest is padding
        parts = (edges[:, : max(0, count - 1)], levels[:, :count], shares[:, :count])
        grain = Grain(*parts, float(flip), int(salt), None if noise is None else noise[g])
        leaves = grain(scores[g], hashed[g])
        if f"{PREFIX}unit" in memory:
            leaves = leaves * memory[f"{PREFIX}unit"][g]
        sent.append(leaves)
    return torch.stack(sent).float()


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
    return without_own_labels(owner, scores)


def without_own_labels(owner: LabelOwner, scores: dict[int, Tensor]) -> dict[int, Tensor]:
    """Scores (N_m, K) of noisy sums without what the rows' own labels added to them, and of one
    spread; of exact sums as they are."""
    summed = owner.memory.get(SUMMED)
    if summed is None:
        return scores
    own = F.one_hot(summed.to(owner.device), owner.classes).float()
    if owner.classes == 2:
        own = own[:, 1:]
    width = next(iter(scores.values())).shape[1] if scores else 1
    unit = torch.ones(len(owner.parties), width, device=owner.device)
    honest = {}
    for m, sent in scores.items():
        if sent.shape[1] != width or width % own.shape[1]:
            raise MessageError(f"party {m} sent {sent.shape[1]} scores of a row")
        rows = _shared_labels(owner, m)[0]
        varies = sent.std(0) > 0  # a constant holds no label
        left = sent - own[rows].repeat(1, width // own.shape[1]) * varies
        unit[m] = SPREAD / left.std(0).clamp(min=0.5)
        honest[m] = left * unit[m]
    owner.memory[UNIT] = unit
    return honest


def of_one_spread(owner: LabelOwner, f: Tensor) -> Tensor:
    """Scores (M, n, d) of rows to be predicted, as far apart as those that were learnt from."""
    if UNIT not in owner.memory:
        return f
    unit = owner.memory[UNIT]
    return f * F.pad(unit, (0, f.shape[-1] - unit.shape[1]), value=1.0)[:, None]


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
