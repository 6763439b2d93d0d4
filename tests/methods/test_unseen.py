"""Unseen and rare classes: what a party describes, what the owner invents, what a batch shows."""

from dataclasses import replace
from types import SimpleNamespace

import torch

from protoevfl.core import novelty
from protoevfl.messages import Statistics
from protoevfl.methods import unseen
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.settings.method_choice import choose_method
from tests.methods.three_classes import D, M, Z, owner, rows


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
    assert (
        novelty.strength(novelty.novelty(pool, aligned, torch.arange(M) + 3, groups=1)) < 3.5
    ).all()


def test_a_mixture_has_the_moments_of_its_rows() -> None:
    f, _ = rows([80, 80, 40], 2)
    means, variances, weights = novelty.mixture(
        f, torch.ones(f.shape[:2]), torch.arange(M) + 1, 5, D
    )
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


def test_a_class_gets_the_rows_it_lacks() -> None:
    me = owner(torch.tensor([0] * 20 + [1] * 20 + [2] * 5), rare=(2,))
    assert [unseen.missing_rows(me, z) for z in range(Z)] == [1, 1, 15]


def test_a_class_without_labels_is_not_a_usual_class() -> None:
    assert unseen.per_class(owner(torch.tensor([0] * 20 + [1] * 10))) == 15


def test_without_the_slot_a_class_that_lacks_labels_is_left_alone() -> None:
    on = ProtoEVFL()
    off = replace(on, unseen=replace(on.unseen, slot=False))
    for me in (owner(torch.tensor([0, 1]), unseen=(2,)), owner(torch.tensor([0, 1, 2]), rare=(2,))):
        assert unseen.lacking(me, on.unseen)
        assert not unseen.lacking(me, off.unseen)
    assert not unseen.lacking(owner(torch.tensor([0, 1, 2])), on.unseen)


def test_tables_look_for_a_class_without_labels_and_not_for_one_with_a_few() -> None:
    """Rows of a table are at their natural rates, which looking in the batch would even out."""
    for kind, looks in (("table", False), ("images", True)):
        settings = choose_method("proto_evfl", "default", kind, {}).unseen  # type: ignore[attr-defined]
        few, none = torch.tensor([0] * 90 + [1] * 90 + [2]), torch.tensor([0, 1])
        assert unseen.lacking(owner(few, rare=(2,)), settings) is looks
        assert unseen.lacking(owner(none, unseen=(2,)), settings)


def described(pool: torch.Tensor, aligned: torch.Tensor, least: int) -> Statistics:
    """What one party says of its pool, asked for as many components as it has rows."""
    net = SimpleNamespace(width=D)
    cohort = SimpleNamespace(net=net, keys=torch.tensor([5]), least_component_rows=least)
    settings = unseen.UnseenSettings(components=1000)
    return unseen.describe(cohort, pool[:1], aligned[:1], 1, settings)  # type: ignore[arg-type]


def test_a_company_s_fewest_rows_hold_for_every_mean_and_every_party_sends_the_same_sizes() -> None:
    pool, _ = rows([100, 100, 60], 1)
    aligned, _ = rows([20, 20, 0], 0)
    free, bounded = described(pool, aligned, 0), described(pool, aligned, 10)
    assert free.means.shape == bounded.means.shape == (1, 2, 260, D)
    assert int((free.weights[0, 1] > 0).sum()) > 100  # nearly a mean per row
    of_pool = bounded.weights[0, 1] * 260
    assert 0 < int((of_pool > 0).sum()) <= 26
    assert float(of_pool[of_pool > 0].min()) > 9
    unshown = bounded.weights == 0
    assert not bounded.means[unshown].any()
    assert not bounded.variances[unshown].any()
