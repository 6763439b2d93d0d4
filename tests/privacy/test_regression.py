"""Attack regression: with the default defences the canary stays at chance; take one away and this
fails."""

import pytest

from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.protocol import investigate

from .world import CLASSES, ROWS, cases

DEFAULT = PrivacySettings(prototype_noise=4.0, class_noise=0.2, rank=16, releases=1)
ROUNDS, SEEDS, CHANCE = 3, 6, 1 / CLASSES


def canary(settings: PrivacySettings, seeds: int = SEEDS) -> float:
    return investigate(cases(settings, seeds, ROUNDS, canary=True), "passive", 0).worst.accuracy


def test_default_keeps_the_canary_within_five_points_of_chance_and_of_its_proof() -> None:
    # with 6, rounding that turns a direction round moves it by more than a point
    found = canary(DEFAULT, 96)
    assert found <= CHANCE + 0.05 + 0.03  # the maximum over attacks: three points of luck
    assert found <= DEFAULT.guess_bound(ROWS, CLASSES, ROUNDS) + 0.03


@pytest.mark.parametrize(
    "weaker",
    [
        PrivacySettings(),
        PrivacySettings(prototype_noise=0.5, rank=16, releases=1),
        # too little noise, a fresh release in every round
        PrivacySettings(prototype_noise=2.0, rank=16),
        PrivacySettings(round_digits=3, min_class_count=5, permute_classes=False),
    ],
)
def test_without_its_defences_the_canary_gives_single_labels_away(weaker: PrivacySettings) -> None:
    assert canary(weaker) > CHANCE + 0.10


def test_the_linear_system_breaks_undefended_prototypes() -> None:
    finding = investigate(cases(PrivacySettings(), 3), "passive", 0)
    solved = [line.accuracy for line in finding.lines if "linear system" in line.attack]
    assert max(solved) >= 0.95
    assert finding.advantage > 0.2


def test_advantage_over_no_communication_is_small_under_the_default() -> None:
    assert investigate(cases(DEFAULT, SEEDS, ROUNDS), "passive", 1).advantage <= 0.10
