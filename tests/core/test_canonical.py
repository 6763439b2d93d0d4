"""What parties have in common: against two-set canonical correlations, and what must not matter."""

import torch
from sklearn.cross_decomposition import CCA
from torch import Tensor

from protoevfl.core import canonical


def world(
    parties: int = 2, common: int = 2, own: int = 3, rows: int = 800, noise: float = 0.5
) -> tuple[Tensor, Tensor]:
    """Embeddings (M, n, d), a mixture of common columns (n, common) and larger ones of each party's
    own."""
    source = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=source, dtype=torch.float64)  # noqa: E731
    shared = draw(rows, common)
    f = torch.cat([shared + noise * draw(parties, rows, common), 5 * draw(parties, rows, own)], -1)
    return f @ torch.linalg.qr(draw(parties, common + own, common + own)).Q, shared


def explained(x: Tensor, target: Tensor) -> float:
    """The share of the target's variance a linear map of x explains."""
    x, target = x - x.mean(0), target - target.mean(0)
    rest = target - x @ torch.linalg.lstsq(x, target).solution
    return 1 - float(rest.square().sum() / target.square().sum())


def test_two_parties_first_direction_is_that_of_scikit_learn() -> None:
    f, _ = world()
    maps = canonical.directions(f, ridge=0.0)
    ours = torch.stack([f[m] @ maps[m, :, 0] for m in range(2)])
    other = CCA(n_components=1, scale=False, max_iter=5000, tol=1e-12).fit(
        f[0].numpy(), f[1].numpy()
    )
    theirs = torch.from_numpy(other.transform(f[0].numpy())[:, 0])
    assert torch.corrcoef(torch.stack([ours[0], theirs]))[0, 1].abs() > 0.999


def test_the_common_part_is_found_under_larger_parts_of_ones_own() -> None:
    for parties in (2, 4):
        f, shared = world(parties)
        x = (f @ canonical.directions(f)).movedim(0, 1).flatten(1)
        two = canonical.principal(x)[:, :2]
        assert explained(x @ two, shared) > 0.8
        side_by_side = f.movedim(0, 1).flatten(1)
        assert explained(side_by_side @ canonical.principal(side_by_side)[:, :2], shared) < 0.3


def test_a_linear_change_of_a_partys_embedding_does_not_matter() -> None:
    f, _ = world()
    turn = torch.randn(5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    moved = f.clone()
    moved[1] = f[1] @ turn + 7
    before, after = (
        (g - g.mean(1, keepdim=True)) @ canonical.directions(g, ridge=0.0) for g in (f, moved)
    )
    torch.testing.assert_close(
        torch.cdist(before[1], before[1]), torch.cdist(after[1], after[1]), atol=1e-6, rtol=1e-6
    )


def test_constant_columns_and_one_party_alone_are_finite() -> None:
    f, _ = world()
    f = torch.cat(
        [
            f,
            torch.zeros(2, 800, 2, dtype=torch.float64),
            torch.ones(2, 800, 1, dtype=torch.float64),
        ],
        -1,
    )
    assert canonical.directions(f).isfinite().all()
    assert canonical.directions(f[:1]).isfinite().all()
    assert canonical.directions(f[:1]).abs().sum() > 0


def test_principal_directions_are_orthonormal_and_keep_distances_on_either_side() -> None:
    x = torch.randn(30, 80, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for rows in (x, x.T):
        v = canonical.principal(rows)
        got = torch.cdist(rows @ v, rows @ v)
        torch.testing.assert_close(got, torch.cdist(rows, rows), atol=1e-5, rtol=1e-5)
        few = canonical.principal(rows, 4)
        torch.testing.assert_close(few.T @ few, torch.eye(4, dtype=torch.float64))
        variance = (rows @ few).var(0)
        assert (variance[:-1] >= variance[1:]).all()


def test_fewer_rows_than_dimensions_give_no_more_than_their_rank() -> None:
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)) @ torch.randn(2, 9)
    assert canonical.principal(x).isfinite().all()
    assert torch.linalg.matrix_rank(canonical.principal(x)) <= 2


def test_many_equal_eigenvalues_do_not_stop_it() -> None:
    """Few rows, many dimensions, most of them dead: single precision fails on this ("failed to
    converge")."""
    source = torch.Generator().manual_seed(0)
    f = torch.randn(8, 300, 220, generator=source).relu() * (
        torch.rand(8, 1, 220, generator=source) < 0.4
    )
    for some in (f, f.repeat(1, 1, 2), torch.zeros(2, 300, 40)):
        assert canonical.directions(some).isfinite().all()
        assert canonical.principal(some.movedim(0, 1).flatten(1)).isfinite().all()
