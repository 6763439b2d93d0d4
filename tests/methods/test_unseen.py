"""Unseen and rare classes: what a party describes, what the owner invents, what a batch shows."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from protoevfl.core import novelty
from protoevfl.head import HeadSettings
from protoevfl.messages import Statistics
from protoevfl.methods import unseen
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.owner import LabelOwner

M, D, Z = 2, 6, 3
QUICK = HeadSettings(members=2, hidden=16, epochs=30, batch=32, noise=0.1, lr=5e-3)


def rows(counts: list[int], seed: int) -> tuple[Tensor, Tensor]:
    """Rows of three well separated classes: embeddings (M, n, D) and labels (n,)."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(Z), torch.tensor(counts))
    means = 4 * torch.eye(Z, D).roll(1, 0).expand(M, Z, D)
    return means[:, labels] + 0.5 * torch.randn(M, len(labels), D, generator=source), labels


def owner(labels: Tensor, **more: object) -> LabelOwner:
    return LabelOwner(labels, Z, tuple(range(M)), key=7, **more)  # type: ignore[arg-type]


def test_novelty_finds_the_class_that_no_aligned_row_has() -> None:
    aligned, _ = rows([20, 20, 0], 0)
    pool, labels = rows([100, 100, 60], 1)
    found = novelty.novelty(pool, aligned, torch.arange(M) + 3, groups=1)
    weight = novelty.members(found)
    for m in range(M):
        assert weight[m][labels == 2].mean() > 0.9
        assert weight[m][labels != 2].mean() < 0.1
    assert (novelty.strength(found) > 3.5).all()


def test_novelty_is_quiet_when_every_class_is_covered() -> None:
    aligned, _ = rows([20, 20, 20], 0)
    pool, _ = rows([100, 100, 60], 1)
    assert (novelty.strength(novelty.novelty(pool, aligned, torch.arange(M) + 3, groups=1)) < 3.5).all()


def test_a_mixture_has_the_moments_of_its_rows() -> None:
    f, _ = rows([80, 80, 40], 2)
    means, variances, weights = novelty.mixture(f, torch.ones(f.shape[:2]), torch.arange(M) + 1, 5, D)
    share = weights[..., None]
    torch.testing.assert_close((share * means).sum(1), f.mean(1), atol=1e-4, rtol=1e-4)
    second = (share * (variances + means.square())).sum(1)
    torch.testing.assert_close(second, f.square().mean(1), atol=1e-2, rtol=1e-2)


def test_invented_rows_follow_the_statistics_and_parties_are_independent() -> None:
    me = owner(torch.tensor([0, 1]), unseen=(2,))
    means, variances = torch.zeros(M, 2, D), torch.ones(M, 2, D)
    means[:, 1] = 50
    drawn = unseen.invent(me, 2, means, variances, torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert abs(drawn.f.mean()) < 0.05
    assert abs(drawn.f.std() - 1) < 0.05
    pair = torch.stack([drawn.f[0, :, 0], drawn.f[1, :, 0]])
    assert torch.corrcoef(pair)[0, 1].abs() < 0.08


def test_a_rare_class_is_invented_from_the_components_near_its_rows() -> None:
    f, labels = rows([20, 20, 2], 3)
    pool, truth = rows([100, 100, 50], 4)
    stats = novelty.mixture(pool, torch.ones(pool.shape[:2]), torch.arange(M) + 1, 8, D)
    told = [Statistics(*(part[m][None] for part in stats), torch.zeros(1)) for m in range(M)]
    made = unseen.synthetic(owner(labels, rare=(2,)), told, f, D)
    assert [(d.label, d.rows) for d in made] == [(2, 18)]
    middle = pool[:, truth == 2].mean(1)
    torch.testing.assert_close(made[0].f.mean(1), middle, atol=0.6, rtol=0)


def test_a_batch_teaches_the_unseen_class_and_no_row_teaches_itself() -> None:
    f, labels = rows([20, 20, 0], 5)
    query, truth = rows([150, 150, 100], 6)
    p = unseen.predict_batch(owner(labels, unseen=(2,)), f, query, D, QUICK, unseen.UnseenSettings())
    assert p.shape == (400, Z)
    torch.testing.assert_close(p.sum(1), torch.ones(400))
    assert (p.argmax(1) == truth).float().mean() > 0.9


def test_two_unseen_classes_get_two_groups() -> None:
    f, labels = rows([20, 0, 0], 7)
    query, truth = rows([150, 100, 100], 8)
    p = unseen.predict_batch(owner(labels, unseen=(1, 2)), f, query, D, QUICK, unseen.UnseenSettings())
    guess = p.argmax(1)
    straight, crossed = (guess == truth).float().mean(), (guess == torch.tensor([0, 2, 1])[truth]).float().mean()
    assert max(straight, crossed) > 0.85


def test_one_example_of_each_unseen_class_names_the_groups() -> None:
    f, labels = rows([20, 0, 0], 7)
    query, truth = rows([150, 100, 100], 8)
    for first, second in ((1, 2), (2, 1)):
        told = {first: int((truth == first).nonzero()[3]), second: int((truth == second).nonzero()[5])}
        me = owner(labels, unseen=(first, second), examples=told)
        p = unseen.predict_batch(me, f, query, D, QUICK, unseen.UnseenSettings())
        assert (p.argmax(1) == truth).float().mean() > 0.85


def groups_of(truth: Tensor, order: tuple[int, int]) -> Tensor:
    """Weights (2, n): which rows are of the one and the other class."""
    return torch.stack([(truth == z).float() for z in order]) + 1e-12


def named(me: LabelOwner, swap: bool, seed: int = 12) -> list[int]:
    """The true class of each group after `agree`, whose folds come in different orders."""
    aligned, _ = seven_classes([12] * 5 + [0, 0], seed)
    query, truth = seven_classes([0] * 5 + [40, 60], seed + 1)
    halves = [torch.arange(0, 100, 2), torch.arange(1, 100, 2)]
    found = [groups_of(truth[halves[0]], (6, 5) if swap else (5, 6)), groups_of(truth[halves[1]], (5, 6))]
    found = unseen.agree(found, [query[half] for half in halves], me, query, aligned)
    names = [[int(truth[half][w.argmax()]) for w in fold] for fold, half in zip(found, halves, strict=True)]
    assert names[0] == names[1]
    return names[0]


ATTRIBUTES = torch.tensor(
    [[1.0, 0, 0, 5], [0, 1, 0, 5], [0, 0, 1, 5], [1, 1, 0, 5], [0, 1, 1, 5], [1, 0, 1, 5], [2, 0, 0, 5]]
)


def seven_classes(counts: list[int], seed: int) -> tuple[Tensor, Tensor]:
    """Joint embeddings (n, 8): a random linear map of the attributes of the class, and noise."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(7), torch.tensor(counts))
    shape = 3 * torch.randn(4, 8, generator=torch.Generator().manual_seed(4))
    return ATTRIBUTES[labels] @ shape + 0.5 * torch.randn(len(labels), 8, generator=source), labels


def seven(**more: object) -> LabelOwner:
    labels = torch.arange(5).repeat_interleave(12)
    return LabelOwner(labels, 7, (0, 1), key=7, unseen=(5, 6), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("swap", [False, True])
def test_attributes_name_the_groups_and_swapped_attributes_swap_the_names(swap: bool) -> None:
    for seed in range(5):
        assert named(seven(attributes=ATTRIBUTES), swap, 10 * seed) == [5, 6]
        assert named(seven(attributes=ATTRIBUTES[[0, 1, 2, 3, 4, 6, 5]]), swap, 10 * seed) == [6, 5]


def test_the_unit_of_an_attribute_and_a_constant_one_do_not_matter() -> None:
    scaled = ATTRIBUTES * torch.tensor([1e4, 1e-3, 1.0, 1.0]) + torch.tensor([0.0, 7.0, -3.0, 0.0])
    assert named(seven(attributes=scaled), True) == [5, 6]


@pytest.mark.parametrize("swap", [False, True])
def test_an_example_wins_over_attributes(swap: bool) -> None:
    wrong = ATTRIBUTES[[0, 1, 2, 3, 4, 6, 5]]
    for told in ({5: 3}, {6: 70}, {5: 3, 6: 70}):  # rows 0 to 39 are of class 5
        assert named(seven(attributes=wrong, examples=told), swap) == [5, 6]
    assert named(seven(attributes=ATTRIBUTES, examples={5: 70}), swap) == [6, 5]


def test_without_side_information_the_folds_agree_on_an_order() -> None:
    assert named(seven(), False) == [5, 6]
    assert named(seven(), True) == [6, 5]


def test_synthetic_rows_are_a_share_of_those_a_class_lacks() -> None:
    me = owner(torch.tensor([0] * 20 + [1] * 20 + [2] * 5), rare=(2,))
    assert [unseen.missing_rows(me, 2, share) for share in (1.0, 0.4, 0.0)] == [15, 6, 1]


def test_without_the_slot_a_class_that_lacks_labels_is_left_alone() -> None:
    on = ProtoEVFL()
    off = replace(on, unseen=replace(on.unseen, slot=False))
    for me in (owner(torch.tensor([0, 1]), unseen=(2,)), owner(torch.tensor([0, 1, 2]), rare=(2,))):
        assert on.lacking(me)
        assert not off.lacking(me)
    assert not on.lacking(owner(torch.tensor([0, 1, 2])))
