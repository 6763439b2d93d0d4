"""A party that answers with codes: what it reads off an owner that answers honestly, through a sign, and not at all."""

import pytest
import torch
from torch import Tensor

from protoevfl.core.prototypes import class_means
from protoevfl.privacy.attacks.chosen_embeddings import calibration, chosen_embeddings, spikes
from protoevfl.privacy.view import Known

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
    assert (spikes(honest, D, Z, rounds, NONE, 1.0).argmax(1) == LABELS).all()  # 4 x 12 directions for 40 rows


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
    for guess in chosen_embeddings(silent, D, Z, 4, NONE).values():
        assert (guess.labels == guess.labels[0]).all()


def test_no_answer_is_no_guess_and_all_ways_are_tried() -> None:
    assert chosen_embeddings(honest, D, Z, 0, NONE) == {}
    names = chosen_embeddings(honest, D, Z, 4, NONE)
    assert any("codes" in name for name in names)
    assert any("spikes" in name for name in names)
