"""What may leave of a sealed score: how coarse it is, and which way it points, so that no column can
be rebuilt from it beyond a party's bounds (the party's audit of itself).

    candidates   where a score is cut: CUTS, at quantiles of the party's own scores
    pushed       w = (A + sum_j gamma_j k_j k_j')^-1 c: away from a column j that is told too well;
                 A shrunken covariance, c contrast of the classes, k_j covariance with the column
    chosen       of those within the bounds the one that keeps most of the exact score (correlation)

Steering away costs less than replacing scores by random ones: what is given up is the part of the
score along the column, not a share of all of it (docs/notes/sealed.md). Draws are what is left where
no direction stays within the bounds; then nothing is sent.

    pictures     s + a sigma_s xi, xi normal by a keyed hash of the row: the least a within the bound

Of a picture no cut alone is within a bound that leaves anything, and noise keeps more of the scores
than cuts with draws do (docs/notes/sealed-bounds.md). Where steps are asked for, they are cut too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from protoevfl.methods.sealed_grain import ANY_LEVEL, GROUPS, NOWHERE, Grain, SealedSettings
from protoevfl.privacy.gives_away import LEAST_ROWS, MOST_ROWS, SelfAuditError, gives_away

MOST_DRAWN = 0.4  # share of scores that are replaced by random ones
MORE_DRAWN = 0.01  # where the share that should do does not
TRIES = 5  # candidates that are measured with draws
FIRST_PUSH, PUSH, TURNS = 0.06, 1.3, 22  # gamma in units of 1 / k' A^-1 k: first, factor, how often
LEAST_KEPT = 0.02  # squared correlation with the exact score under which sending says nothing
AUDITED = 20_000  # own rows on which a party measures what scores give away
MOST_PATTERNS = 64  # of what is sent, up to which the best decoder is known; else by experiment
ERRORS = 2.0  # standard errors that a number's R^2 on own rows stays below its bound: others differ
PICTURES = 2000  # own pictures on which decoders are tried: with 600 they rebuild a tenth less
FIRST_NOISE, MOST_NOISE = 1.0, 4.0  # in units of a score's own spread: tried first, at most
NOISE_STEP = 0.05  # finer steps are not looked for, nor what is
NEAR = 0.99  # of the bound
LEAST_OF_VALUE = 10  # rows of a category's value under which it is not counted


@dataclass(frozen=True)
class Candidate:
    """Directions (F, d, K), the last one for rows to be predicted, and the grain of their scores."""

    directions: Tensor
    grain: Grain
    strength: Mapping[str, float] = field(default_factory=dict)  # of the push from each column


def choose(
    own: Tensor,
    columns: Mapping[str, Tensor],
    unpushed: Tensor,
    aim: "Aim | None",
    salt: int,
    settings: SealedSettings,
) -> Candidate:
    """The candidate within the bounds that keeps most of the exact score; SelfAuditError where none
    is. Every direction is tried, because made-up sums may steer a single one.

    own        (n, d) standardised features of the party's own rows
    columns    the same rows as `gives_away` takes them
    unpushed   (F, d, K) directions
    aim        what it takes to push them away from columns; None: they are taken as they are
    """
    if settings.levels == ANY_LEVEL and any(column.ndim > 1 for column in columns.values()):
        return _with_noise(own, columns, unpushed, salt, settings)
    places = torch.linspace(0, len(own) - 1, min(len(own), AUDITED)).round().long().to(own.device)
    tried = own[places]
    audit = Audit({name: column[places] for name, column in columns.items()}, settings)
    exact = tried @ unpushed[-1]
    found: list[tuple[float, float, Candidate]] = []
    for candidate, over in _candidates(own, tried, audit, unpushed, aim, salt, settings):
        share = audit.to_draw(over)
        kept = (1 - share) ** 2 * _kept(candidate, tried, exact)
        if aim is None and not share and kept > LEAST_KEPT:  # from fine to coarse
            return candidate
        if kept > LEAST_KEPT and (candidate.grain.levels.shape[1] or not share):
            found.append((kept, share, candidate))
    best = sorted(found, key=lambda one: one[0], reverse=True)[:TRIES]
    safest = sorted(found, key=lambda one: one[1])[:TRIES]  # those within the bounds come first
    for _, share, candidate in best + safest:
        while share < MOST_DRAWN:
            drawn = replace(candidate, grain=replace(candidate.grain, flip=share))
            over = audit.scores(tried, drawn.directions, drawn.grain)
            if max(over.values()) <= 1:
                return drawn
            share += MORE_DRAWN
    raise _refusal(over, "the coarsest scores", settings)


def _with_noise(
    own: Tensor,
    columns: Mapping[str, Tensor],
    directions: Tensor,
    salt: int,
    settings: SealedSettings,
) -> Candidate:
    """Exact scores of pictures with the least noise that the bounds take. The measurement is what
    takes time: with the last direction the noise is found, by lines between what was measured; then
    every other one is measured with it."""
    places = torch.linspace(0, len(own) - 1, min(len(own), PICTURES)).round().long().to(own.device)
    audit = Audit({name: column[places] for name, column in columns.items()}, settings, PICTURES)
    scores = own @ directions[-1]
    exact, spread = Grain.of(scores, NOWHERE, 0.0, salt), scores.std(0)

    def over(amount: float, directions: Tensor) -> dict[str, float]:
        return audit.scores(own[places], directions, replace(exact, noise=amount * spread))

    low = high = 0.0
    left = over(high, directions[-1:])
    above = within = max(left.values())
    while within > 1 and high < MOST_NOISE:
        low, above, high = high, within, min(max(FIRST_NOISE, 2 * high), MOST_NOISE)
        left = over(high, directions[-1:])
        within = max(left.values())
    while within < NEAR and high - low > NOISE_STEP:
        part = (above - 1) / (above - within)
        middle = low + min(max(part, 0.1), 0.9) * (high - low) + 0.1 * NOISE_STEP
        found = max(over(middle, directions[-1:]).values())
        if found > 1:
            low, above = middle, found
        else:
            high, within = middle, found
    while max((left := over(high, directions)).values()) > 1:
        if high >= MOST_NOISE:
            raise _refusal(
                left, f"scores with noise of {MOST_NOISE:g} times their spread", settings
            )
        high = min(high + NOISE_STEP, MOST_NOISE)
    return Candidate(directions, replace(exact, noise=high * spread))


def _refusal(over: Mapping[str, float], sent: str, settings: SealedSettings) -> SelfAuditError:
    name = max(over, key=over.__getitem__)
    return SelfAuditError(
        f"even {sent} would give away '{name}', {over[name]:.1f} times what the "
        f"bounds allow (sealed.most_of_number = {settings.most_of_number:g}, "
        f"sealed.most_of_category = {settings.most_of_category:g}); nothing is sent"
    )


def _candidates(
    own: Tensor,
    tried: Tensor,
    audit: "Audit",
    unpushed: Tensor,
    aim: "Aim | None",
    salt: int,
    settings: SealedSettings,
) -> Iterator[tuple[Candidate, dict[str, float]]]:
    """Each with what it gives away, as multiples of the bounds: for every cut, pushed step by step
    until it is within them."""
    for cuts in settings.cuts:
        directions = unpushed
        first = Grain.of(own @ unpushed[-1], cuts, 0.0, salt)
        if cuts == GROUPS:  # pushed scores fall into other groups: the shares are kept
            cuts = tuple((1 - first.shares[:, -1].mean(0, keepdim=True)).tolist())
        strength: dict[str, float] = {}
        for _ in range(TURNS if aim is not None else 1):
            grain = Grain.of(own @ directions[-1], cuts, 0.0, salt) if strength else first
            scores = audit.scores(tried, directions, grain)
            yield Candidate(directions, grain, dict(strength)), scores
            over = [name for name, score in scores.items() if score > 1]
            if not over:
                break
            strength |= {name: max(FIRST_PUSH, PUSH * strength.get(name, 0.0)) for name in over}
            if aim is not None:
                directions = aim.pushed(strength)


def _kept(found: Candidate, tried: Tensor, exact: Tensor) -> float:
    """Squared correlation of what would leave with the exact scores (n, K), mean over K."""
    sent = found.grain(tried @ found.directions[-1], tried)
    a, b = (x - x.mean(0) for x in (sent, exact))
    shared = (a * b).mean(0).square() / (a.square().mean(0) * b.square().mean(0)).clamp(min=1e-12)
    return float(shared.mean())


class Aim:
    """Directions (F, d, K) pushed away from columns.

    shrunken     A (d, d)
    contrasts    (F, d, K), of the classes
    covariance   (d, d) of the features of own rows (n, d), by which scores get their spread
    """

    def __init__(
        self,
        shrunken: Tensor,
        contrasts: Tensor,
        covariance: Tensor,
        own: Tensor,
        columns: Mapping[str, Tensor],
        spread: float,
    ) -> None:
        centred = own - own.mean(0)
        across = {name: centred.T @ _target(c).to(own) / len(own) for name, c in columns.items()}
        widths = [k.shape[1] for k in across.values()]
        solved = torch.linalg.solve(shrunken, torch.cat(list(across.values()), 1))
        self.columns = {
            name: (k, part)
            for (name, k), part in zip(across.items(), solved.split(widths, 1), strict=True)
        }
        self.plain = torch.linalg.solve(shrunken, contrasts)
        self.covariance, self.spread = covariance, spread

    def pushed(self, strength: Mapping[str, float]) -> Tensor:
        return with_spread(self.turned(self.plain, strength), self.covariance, self.spread)

    def turned(self, plain: Tensor, strength: Mapping[str, float]) -> Tensor:
        """What A^-1 c (..., d, K) becomes. Woodbury: only the columns that are pushed away from enter
        a system of equations."""
        if not strength:
            return plain
        across, solved, weight = [], [], []
        for name, share in strength.items():
            k, part = self.columns[name]
            across.append(k)
            solved.append(part)
            unit = float((k * part).sum().clamp(min=1e-12))
            weight += [unit / share] * k.shape[1]
        k, part = torch.cat(across, 1), torch.cat(solved, 1)
        inner = k.T @ part + torch.diag(k.new_tensor(weight))
        turned: Tensor = plain - part @ torch.linalg.solve(inner, k.T @ plain)
        return turned


def with_spread(directions: Tensor, covariance: Tensor, spread: float) -> Tensor:
    """Directions (..., d, K) whose scores have this standard deviation."""
    variance = (directions * (covariance @ directions)).sum(-2, keepdim=True)
    scaled: Tensor = spread * directions / variance.sqrt().clamp(min=1e-9)
    return scaled


def _target(column: Tensor) -> Tensor:
    """(n, p) standardised: a number, or a category's values as 0/1."""
    if column.is_floating_point():
        x = column.double().reshape(len(column), -1)
    else:
        codes = torch.unique(column, return_inverse=True)[1]
        x = torch.nn.functional.one_hot(codes).double()
    centred: Tensor = (x - x.mean(0)) / x.std(0).clamp(min=0.05)
    return centred


class Audit:
    """What scores give away of each column, as multiples of a party's bounds.

    most_rows   that decoders learn from and are tried on where the best one is not known
    """

    def __init__(
        self,
        columns: Mapping[str, Tensor],
        settings: SealedSettings,
        most_rows: int = MOST_ROWS,
    ) -> None:
        self.columns, self.most_rows = columns, most_rows
        self.bound = {
            name: settings.most_of_number if c.is_floating_point() else settings.most_of_category
            for name, c in columns.items()
        }

    def scores(self, tried: Tensor, directions: Tensor, grain: Grain) -> dict[str, float]:
        """{column: the largest multiple of its bound} over directions (F, d, K), on rows (n, d)."""
        worst = dict.fromkeys(self.columns, 0.0)
        for direction in directions:
            found = self.rebuilt(grain(tried @ direction, tried))
            for name, score in found.items():
                worst[name] = max(worst[name], score / self.bound[name])
        return worst

    def to_draw(self, over: Mapping[str, float]) -> float:
        """The share of scores that must be drawn at random, given how often columns pass their
        bounds: what a draw leaves of R^2 is (1 - share)^2, of a category 1 - share."""
        kept = [
            1.0 if score <= 1 else score ** (-0.5 if self.columns[name].is_floating_point() else -1)
            for name, score in over.items()
        ]
        return 1 - min(kept, default=1.0)

    def rebuilt(self, sent: Tensor) -> dict[str, float]:
        """What is rebuilt of each column from what is sent (n, K)."""
        if len(sent) < LEAST_ROWS:
            raise SelfAuditError(
                f"{len(sent)} own rows are too few to measure what scores would give away; nothing "
                "is sent"
            )
        place = _patterns(sent)
        if int(place.max()) >= MOST_PATTERNS:
            return gives_away(self.columns, sent, self.most_rows)
        return {name: best_guess(column, place, ERRORS) for name, column in self.columns.items()}


def _patterns(sent: Tensor) -> Tensor:
    """(n,) which of the different rows of `sent` (n, K) each row is: column by column, which takes
    a twentieth of the time that comparing whole rows takes."""
    place = torch.zeros(len(sent), dtype=torch.int64, device=sent.device)
    for column in sent.T:
        codes = torch.unique(column, return_inverse=True)[1]
        place = torch.unique(place * len(sent) + codes, return_inverse=True)[1]
    return place


def best_guess(column: Tensor, place: Tensor, errors: float = 0.0) -> float:
    """What the best of all decoders rebuilds of a column where only `place` (n,), one of a few
    patterns, is sent: the mean of each pattern, or the value that has the largest share of its rows
    there. R^2, or the way from chance to certainty; pixels (n, p) together.

    errors   standard errors that are added to R^2: what it may be on other people. A category's rare
             values would have errors as large as the bound, so it has none
    """
    count = int(place.max()) + 1
    if not column.is_floating_point():
        codes = torch.unique(column, return_inverse=True)[1]
        table = torch.bincount(codes * count + place, minlength=count * (int(codes.max()) + 1))
        table = table.view(-1, count).double()  # values x patterns
        often = table[table.sum(1) >= LEAST_OF_VALUE]
        if len(often) < 2:
            return 0.0
        rows = often.sum(1)
        recall = (often / rows[:, None]).amax(0).sum() / len(often)
        return float((recall - 1 / len(often)) / (1 - 1 / len(often)))
    x = column.double().reshape(len(column), -1)
    spread = (x - x.mean(0)).square().sum(1)
    if spread.sum() <= 1e-9 * len(x):
        return 0.0
    sums = x.new_zeros(count, x.shape[1]).index_add(0, place, x)
    means = sums / torch.bincount(place, minlength=count)[:, None]
    missed = (x - means[place]).square().sum(1)
    left = missed.sum() / spread.sum()
    error = (missed - left * spread).square().sum().sqrt() / spread.sum()  # of a ratio of means
    return min(1.0, float(1 - left + errors * error))
