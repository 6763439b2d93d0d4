"""k-means in batches."""

import torch

from protoevfl.methods.clusters import k_means
from tests.tiny import keys


def test_finds_well_separated_groups_in_every_member() -> None:
    torch.manual_seed(0)
    truth = torch.arange(60) % 6
    centres = 10 * torch.randn(3, 6, 4)
    found = k_means(centres[:, truth] + 0.1 * torch.randn(3, 60, 4), 6, keys(3))
    for member in found:
        groups = {(int(a), int(b)) for a, b in zip(truth, member, strict=True)}
        assert len(groups) == 6  # one cluster a class, one class a cluster


def test_members_do_not_depend_on_each_other() -> None:
    x = torch.randn(3, 30, 4)
    torch.testing.assert_close(k_means(x, 4, keys(3))[1:2], k_means(x[1:2], 4, keys(3)[1:2]))


def test_more_groups_than_different_rows_is_no_error() -> None:
    assert k_means(torch.zeros(1, 5, 2), 3, keys(1)).shape == (1, 5)
