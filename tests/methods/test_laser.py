"""LASER-VFL: subsets are drawn as the page says, one model serves them all."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from protoevfl.methods.laser import Laser, fused, row_kinds, subsets
from tests.methods.play import ALIGNED, any_subset, play, played, same_numbers
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
    """Sum over heads k in S of a_|S| / (subsets of that size with k) is the same for every subset
    S."""
    weights = Laser().size_weights(4)
    per_size = [
        (j * weights[j - 1] / len([s for s in itertools.combinations(range(4), j) if 0 in s]))
        for j in range(1, 5)
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


def test_parties_that_lack_a_row_are_in_no_subset_of_those_that_have_it() -> None:
    here = torch.tensor([True, False, True, False])
    chosen = subsets(keys(4), 0, 4, 50, here)
    for head in (0, 2):
        assert not chosen[head, :2, :, ~here].any()
        assert chosen[head, 1][:, here].all()


def test_every_labelled_row_has_its_kind_and_its_number_at_the_other_party() -> None:
    run = play("laser", TINY | {"epochs": 1}, labels="all", overlap=4)
    world = run.worlds[0]
    kinds = row_kinds(world.owner)
    assert sorted(len(kind) for kind in kinds) == [4, 4, 4, 30 - 12]
    for kind in kinds:
        for m, numbers in kind.numbers.items():
            further = world.tables[m].further
            assert further is not None
            assert numbers.tolist() == [ALIGNED + i for i in range(4)]
            own = world.split.further_of(m)  # the same rows of the data set at both
            first = world.split.further_of(0).tolist().index(int(own[0]))
            assert torch.equal(kind.labels, world.labels.pools[0][first : first + 4])


def test_rows_of_the_active_party_go_to_it_alone_and_others_see_shared_ones_only() -> None:
    run = play("laser", TINY | {"epochs": 1}, labels="all", overlap=4)
    assert run.crossed() == {
        ("down", "ForwardBatch"), ("up", "Embeddings"), ("down", "BackwardBatch"), ("up", "Done"),
    }  # fmt: skip
    for _, party, request, _ in run.transcript:
        if party and type(request).__name__ == "ForwardBatch":
            assert int(request.rows.max()) < ALIGNED + 4  # type: ignore[attr-defined]


def test_engines_agree_with_every_label() -> None:
    given = TINY | {"epochs": 1}
    stacked = play("laser", given, labels="all", overlap=4).predict()
    loop = play("laser", given, "loop", wire=True, labels="all", overlap=4).predict()
    for a, b in zip(stacked, loop, strict=True):
        torch.testing.assert_close(a, b, atol=5e-3, rtol=0)
