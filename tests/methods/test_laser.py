"""LASER-VFL: subsets are drawn as the page says, one model serves them all."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from protoevfl.methods.laser import Laser, fused, subsets
from tests.methods.play import ALIGNED, any_subset, played, same_numbers
from tests.tiny import keys

TINY = {"epochs": 2, "models": 2, "batch": 20}


def test_engines_give_the_same_numbers() -> None:
    same_numbers("laser", TINY)


def test_any_subset_predicts() -> None:
    any_subset("laser", TINY)


def test_what_crosses_is_what_crosses_in_split_learning() -> None:
    run = played("laser", TINY)
    assert run.crossed() == {
        ("down", "ForwardBatch"), ("up", "Embeddings"), ("down", "BackwardBatch"), ("up", "Done"),
    }  # fmt: skip
    assert run.bytes(1, "up", "Embeddings") == TINY["epochs"] * TINY["models"] * ALIGNED * 84 * 4


def test_every_subset_holds_its_head_and_has_its_size() -> None:
    chosen = subsets(keys(8), 3, 4, 50)  # two models of four parties
    assert chosen.shape == (8, 4, 50, 4)
    own = torch.arange(8) % 4
    assert chosen[torch.arange(8), :, :, own].all()
    assert (chosen.sum(-1) == torch.arange(1, 5)[:, None]).all()


def test_all_subsets_of_a_size_come_up_equally_often() -> None:
    pairs = subsets(keys(4), 0, 4, 3000)[0, 1]  # (rows, 4): head 0, size 2
    shares = pairs[:, 1:].float().mean(0)
    torch.testing.assert_close(shares, torch.full((3,), 1 / 3), atol=0.04, rtol=0)


def test_fused_is_the_mean_of_the_chosen_blocks() -> None:
    z, chosen = torch.randn(1, 3, 2, 5), torch.rand(1, 3, 3, 2, 3) > 0.4
    chosen[..., 0] = True
    got = fused(z, chosen)
    for h, s, b in itertools.product(range(3), range(3), range(2)):
        torch.testing.assert_close(got[0, h, s, b], z[0, chosen[0, h, s, b], b].mean(0))


def test_weights_count_every_subset_once() -> None:
    """Sum over heads k in S of a_|S| / (subsets of that size with k) is the same for every subset S."""
    weights = Laser().size_weights(4)
    per_size = [
        (j * weights[j - 1] / len([s for s in itertools.combinations(range(4), j) if 0 in s])) for j in range(1, 5)
    ]
    torch.testing.assert_close(torch.stack(per_size), per_size[0].expand(4))
    torch.testing.assert_close(Laser(weights="sizes").size_weights(3), torch.full((3,), 1 / 3))


@pytest.mark.parametrize("present", [(True, True, True), (True, False, True)])
def test_prediction_is_the_mean_of_the_members_heads(present: tuple[bool, ...]) -> None:
    method, z, here = Laser(models=1, dropout=0.0), torch.randn(1, 3, 4, 5), torch.tensor(present)
    head = method.head(keys(1), 3, 5, 2)
    got = method.probabilities(head, z, here)
    mean = z[0, here].mean(0)
    heads = head(mean.expand(3, 1, 4, 5))  # type: ignore[operator]
    torch.testing.assert_close(got, F.softmax(heads, -1)[here].mean(0))
