"""The protocol of every privacy figure: largest attack, yardstick, canary, utility, intervals.

1. threat models apart (passive, malicious, colluding), each with k known labels per class;
2. the figure is the maximum over attacks and rounds of the mean over seeds and parties (a maximum over single runs
   would mostly pick luck);
3. its advantage over the best attacker that received nothing, paired by seed;
4. the canary: the same run with the labels shuffled over the rows, so that embeddings say nothing about them: what is
   then found above chance is information about single rows;
5. the accuracy of the same run beside it; 6. 95 % intervals over seeds. Only a proof is called a guarantee.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from protoevfl.core.prototypes import class_means
from protoevfl.messages import Embeddings, Learn
from protoevfl.privacy.attacks.chosen_embeddings import chosen_embeddings
from protoevfl.privacy.attacks.class_sums import class_sums
from protoevfl.privacy.attacks.collusion import collusion
from protoevfl.privacy.attacks.gradients import gradient_attacks
from protoevfl.privacy.attacks.linear_system import linear_system
from protoevfl.privacy.attacks.model_completion import model_completion
from protoevfl.privacy.attacks.nearest_prototype import nearest_prototype
from protoevfl.privacy.attacks.no_communication import majority, no_communication
from protoevfl.privacy.defences.noise import Noise
from protoevfl.privacy.policy import OwnerGuard, PrivacySettings
from protoevfl.privacy.scores import Score, interval, score
from protoevfl.privacy.view import Attack, Guess, Known, View, know

PASSIVE: tuple[Attack, ...] = (
    nearest_prototype,
    linear_system,
    class_sums,
    model_completion,
    gradient_attacks,
)
COLLUDING: tuple[Attack, ...] = (collusion, class_sums, model_completion, gradient_attacks)


@dataclass(frozen=True)
class Case:
    """One attacker in one run: what it saw, and the truth."""

    seed: int
    view: View
    labels: Tensor


@dataclass(frozen=True)
class Line:
    """One attack over all seeds."""

    attack: str
    communicates: bool
    accuracy: float
    half: float  # of the 95 % interval
    matched: float
    nmi: float
    classes: float
    by_seed: tuple[float, ...]


@dataclass(frozen=True)
class Finding:
    """One threat model at one k: the worst attack, the yardstick, and the difference."""

    threat: str
    known: int
    worst: Line
    yardstick: Line
    advantage: float
    advantage_half: float
    chance: float
    lines: tuple[Line, ...]

    def as_json(self, lines: bool = True) -> dict[str, Any]:
        facts = asdict(self)
        if not lines:
            facts.pop("lines")
        return facts


@dataclass(frozen=True)
class Attempt:
    """One attacker's scores: attacks on what it received, attackers that received nothing; the
    commonest class."""

    seed: int
    talking: Mapping[str, Score]
    silent: Mapping[str, Score]
    majority: float


Extra = Callable[[Case, Known], dict[str, Guess]]


def investigate(
    cases: Sequence[Case], threat: str, known: int, extra: Extra | None = None
) -> Finding:
    """Runs the attacks of a threat model on all cases; `extra` adds attacks that ask the owner
    (malicious)."""
    return finding([attempt(case, threat, known, extra) for case in cases], threat, known)


def attempt(case: Case, threat: str, known: int, extra: Extra | None = None) -> Attempt:
    """All attacks of a threat model on one case."""
    attacks = COLLUDING if threat == "colluding" else () if threat == "malicious" else PASSIVE
    side = know(case.labels, known, case.view.classes, case.seed)
    by_attack = [attack(case.view, side) for attack in attacks] + (
        [extra(case, side)] if extra is not None else []
    )
    nothing = {"majority": majority(case.labels), **no_communication(case.view, side)}
    talking = {name: guess for part in by_attack for name, guess in part.items()}

    def scores(guesses: Mapping[str, Guess]) -> dict[str, Score]:
        return {
            name: score(guess, case.labels, side, case.view.classes)
            for name, guess in guesses.items()
        }

    rate = float(case.labels.bincount().max()) / len(case.labels)
    return Attempt(case.seed, scores(talking), scores(nothing), rate)


def finding(attempts: Sequence[Attempt], threat: str, known: int) -> Finding:
    """The worst attack by its mean over attempts, against the best attacker that received
    nothing."""
    talking: dict[str, dict[int, list[Score]]] = defaultdict(lambda: defaultdict(list))
    silent: dict[str, dict[int, list[Score]]] = defaultdict(lambda: defaultdict(list))
    for one in attempts:
        for table, scores in ((talking, one.talking), (silent, one.silent)):
            for name, value in scores.items():
                table[name][one.seed].append(value)
    chance = sum(one.majority for one in attempts) / len(attempts)
    yardsticks = [_line(name, False, by_seed) for name, by_seed in silent.items()]
    yardstick = max(yardsticks, key=lambda line: line.accuracy)
    lines = [
        _line(name, True, by_seed)
        for name, by_seed in talking.items()
        if len(by_seed) == len(silent["majority"])
    ]
    worst = max(lines, key=lambda line: line.accuracy, default=yardstick)
    pairs = zip(worst.by_seed, yardstick.by_seed, strict=True)
    advantage, half = interval([a - b for a, b in pairs])
    return Finding(threat, known, worst, yardstick, advantage, half, chance, (*lines, *yardsticks))


def _line(name: str, communicates: bool, scores_of: dict[int, list[Score]]) -> Line:
    """Parties are averaged within a seed, the interval is over seeds."""

    def mean(what: str) -> list[float]:
        return [
            sum(float(getattr(s, what)) for s in scores) / len(scores)
            for scores in scores_of.values()
        ]

    by_seed = mean("accuracy")
    middle, half = interval(by_seed)
    matched, shared, classes = (interval(mean(what))[0] for what in ("matched", "nmi", "classes"))
    return Line(name, communicates, middle, half, matched, shared, classes, tuple(by_seed))


def shuffled(labels: Tensor, seed: int, number: int = 1) -> Tensor:
    """Canary labels: the same labels on other rows, as often as wanted."""
    from protoevfl.core import random as rnd

    order = rnd.permutation(
        torch.tensor([rnd.key(seed, "canary")]), "canary", number - 1, len(labels)
    )[0]
    return labels[order.to(labels.device)]


def asking(
    settings: PrivacySettings, labels: Tensor, classes: int, noise: Noise, party: int = 1
) -> Callable[[Tensor], Tensor]:
    """The label owner as a malicious party sees it: embeddings (N, d) in, prototypes (Z, d) out."""
    guard = OwnerGuard(settings, labels, classes, noise)
    turn = iter(range(1 << 30))

    def ask(f: Tensor) -> Tensor:
        sent = guard.received(party, Embeddings(f.float()))
        assert isinstance(sent, Embeddings)
        means, counts = class_means(sent.values, labels, classes)
        prior = torch.full((classes,), 1 / classes)
        answer = guard.down(party, Learn(next(turn), means, (counts > 0).float(), prior))
        assert isinstance(answer, Learn)
        return answer.prototypes

    return ask


def malicious(
    settings: PrivacySettings, width: int, rounds: int, noise: Callable[[int], Noise]
) -> Extra:
    """Chosen-embedding attacks against the owner's guard, for `investigate`."""

    def attack(case: Case, side: Known) -> dict[str, Guess]:
        labels = case.labels.cpu()
        owner = asking(settings, labels, case.view.classes, noise(case.seed))
        rank = settings.rank if settings.guards_labels else None
        here = Known(side.labels.cpu())
        return chosen_embeddings(owner, width, case.view.classes, rounds, here, rank=rank)

    return attack
