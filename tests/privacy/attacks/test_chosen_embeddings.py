"""A party that answers with codes: what it reads off an owner that answers honestly, through a
sign, and not at all."""

import pytest
import torch
from torch import Tensor

from protoevfl.core.prototypes import class_means
from protoevfl.privacy.attacks.chosen_embeddings import (
    calibration,
    chosen_embeddings,
    codes,
    spikes,
)
from protoevfl.privacy.defences.noise import SeededNoise
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.protocol import asking
from protoevfl.privacy.scores import score
from protoevfl.privacy.view import Known

from .. import world
from ..world import BARE, CLASSES, ROWS, WIDTH, best, embeddings

N, D, Z = 40, 12, 3
LABELS = torch.randint(0, Z, (N,), generator=torch.Generator().manual_seed(3))
NONE = Known(torch.full((N,), -1))
ONE = Known(torch.where(torch.arange(N) == 5, LABELS, -1))


def honest(f: Tensor) -> Tensor:
    return class_means(f.double(), LABELS, Z)[0]


def mirrored(f: Tensor) -> Tensor:
    return -honest(f)


@pytest.mark.parametrize("rounds", [4, 7])
def test_spikes_read_every_label_once_each_row_had_its_direction(rounds: int) -> None:
    # 4 x 12 directions for 40 rows
    assert (spikes(honest, D, Z, rounds, NONE, 1.0).argmax(1) == LABELS).all()


def test_fewer_answers_tell_the_rows_of_their_blocks_alone() -> None:
    scores = spikes(honest, D, Z, 1, NONE, 1.0)
    assert (scores[:D].argmax(1) == LABELS[:D]).all()
    assert not scores[D:].any()


def test_one_known_label_undoes_a_mirror() -> None:
    assert (spikes(mirrored, D, Z, 4, NONE, 1.0).argmax(1) == LABELS).float().mean() < 0.6
    assert (spikes(mirrored, D, Z, 4, ONE, 1.0).argmax(1) == LABELS).all()
    assert torch.equal(calibration(mirrored, D, ONE, 1.0), -torch.eye(D, dtype=torch.float64))


def test_an_owner_that_says_nothing_gives_nothing_away() -> None:
    silent = lambda f: torch.zeros(Z, D)  # noqa: E731
    assert torch.equal(calibration(silent, D, ONE, 1.0), torch.eye(D, dtype=torch.float64))
    assert not spikes(silent, D, Z, 4, NONE, 1.0).any()
    for w in codes(silent, D, 4, NONE, 1.0, None).values():
        # no class is preferred by more than rounding, about 1e-12
        assert (w.amax(1) - w.amin(1)).max() < 1e-6


def test_no_answer_is_no_guess_and_all_ways_are_tried() -> None:
    assert chosen_embeddings(honest, D, Z, 0, NONE) == {}
    names = chosen_embeddings(honest, D, Z, 4, NONE)
    assert any("codes" in name for name in names)
    assert any("spikes" in name for name in names)


def test_chosen_embeddings_are_exact_without_a_defence_and_bounded_with_one() -> None:
    _, labels = embeddings(0)
    rounds = 5
    bare = chosen_embeddings(
        asking(BARE, labels, CLASSES, SeededNoise(0)), WIDTH, CLASSES, rounds, world.NONE
    )
    assert best(bare, labels) == 1.0
    settings = PrivacySettings(prototype_noise=4.0, releases=1, rank=16)
    rates = []
    for seed in range(8):
        owner = asking(settings, labels, CLASSES, SeededNoise(seed))
        rates.append(chosen_embeddings(owner, WIDTH, CLASSES, rounds, world.NONE, rank=16))
    means = [
        sum(score(r[name], labels, world.NONE, CLASSES).accuracy for r in rates) / 8
        for name in rates[0]
    ]
    assert max(means) <= settings.guess_bound(ROWS, CLASSES, rounds) + 0.04


def test_huge_chosen_embeddings_gain_nothing() -> None:
    _, labels = embeddings(0)
    settings = PrivacySettings(prototype_noise=4.0, releases=1, rank=16)
    owner = asking(settings, labels, CLASSES, SeededNoise(1))
    guesses = chosen_embeddings(owner, WIDTH, CLASSES, 1, world.NONE, magnitude=1e15, rank=16)
    assert best(guesses, labels) < 0.5
