"""Novelty: against slow loops, invariances, memberships, clusters, mixtures."""

import torch
import torch.nn.functional as F

from protoevfl.core import novelty
from protoevfl.core.transport import unit

G, N, A, D, NEAR = 2, 40, 12, 5, 4
SOURCE = torch.Generator().manual_seed(0)
POOL, ALIGNED = torch.randn(G, N, D, generator=SOURCE), torch.randn(G, A, D, generator=SOURCE)
KEYS = torch.tensor([3, 5])


def near() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    xu, xa = unit(POOL), unit(ALIGNED)
    return (
        xu,
        xa,
        novelty._neighbours(xu, xu, NEAR, False, chunk=7),
        novelty._neighbours(xa, xu, NEAR, True),
    )


def test_neighbours_are_the_nearest_and_never_the_row_itself() -> None:
    xu, _, pool, _ = near()
    for g in range(G):
        for i in range(N):
            similar = xu[g] @ xu[g, i]
            similar[i] = -2
            assert set(pool[g, i].tolist()) == set(similar.topk(NEAR).indices.tolist())


def test_distances_against_a_loop_that_leaves_each_aligned_row_out() -> None:
    xu, xa, near_pool, near_aligned = near()
    s, a = novelty._distances(xu, xa, near_pool, near_aligned)
    for g in range(G):

        def d(x: torch.Tensor, rows: list[int], g: int = g) -> torch.Tensor:
            return (1 - xa[g, rows] @ x).sort().values[:3].mean()

        for i in (0, 7):
            around = [i, *near_pool[g, i].tolist()]
            torch.testing.assert_close(
                s[g, i], torch.stack([d(xu[g, k], list(range(A))) for k in around]).mean()
            )
        for j in (0, 5):
            others = [k for k in range(A) if k != j]
            parts = [
                d(xa[g, j], others),
                *(d(xu[g, k], others) for k in near_aligned[g, j].tolist()),
            ]
            torch.testing.assert_close(a[g, j], torch.stack(parts).mean())


def test_logistic_gradient_vanishes_at_the_solution() -> None:
    x, w = torch.randn(G, 60, 3, generator=SOURCE), torch.rand(G, 60, generator=SOURCE)
    y = (x[..., 0] + 0.3 * x[..., 1] > 0).float()
    beta = novelty._logistic(x, y, w)
    wide = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    p = (wide @ beta[..., None]).squeeze(-1).sigmoid()
    gradient = (wide * (w * (p - y))[..., None]).sum(1)[:, :-1] + beta[:, :-1]
    assert gradient.abs().max() < 1e-3


def test_members_found_alone_and_stacked_agree() -> None:
    both = novelty.novelty(POOL, ALIGNED, KEYS, groups=3)
    for g in range(G):
        alone = novelty.novelty(POOL[g : g + 1], ALIGNED[g : g + 1], KEYS[g : g + 1], groups=3)
        torch.testing.assert_close(both.pool[g : g + 1], alone.pool, atol=1e-3, rtol=1e-3)


def test_memberships_are_shares_that_rise_with_the_score() -> None:
    found = novelty.novelty(POOL, ALIGNED, KEYS, groups=1)
    weight = novelty.members(found)
    assert ((weight >= 0) & (weight <= 1)).all()
    assert (weight.gather(1, found.pool.argsort(1)).diff(dim=1) >= 0).all()


def test_clusters_find_separated_groups() -> None:
    middles = 5 * torch.eye(4, 8)
    truth = torch.arange(80) % 4
    x = unit(middles[truth] + 0.3 * torch.randn(1, 80, 8, generator=SOURCE))
    label, _ = novelty.clusters(x, 4, KEYS[:1])
    table = F.one_hot(truth).float().T @ F.one_hot(label[0], 4).float()
    assert (table.max(1).values == 20).all()


def test_a_row_without_weight_moves_no_mixture() -> None:
    weight = torch.ones(G, N)
    weight[:, 0] = 0
    moved = POOL.clone()
    moved[:, 0] = 1e3
    first, second = (novelty.mixture(f, weight, KEYS, 1, D) for f in (POOL, moved))
    torch.testing.assert_close(first[0], second[0], atol=1e-3, rtol=1e-3)
