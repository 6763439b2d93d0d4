"""Membership: means that are rows are seen as such; means of groups tell members from nobody."""

import torch
from torch import Tensor

from protoevfl.messages import Statistics
from protoevfl.privacy.attacks.membership import told_apart


def rows(seed: int, count: int = 400) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def statistics(means: Tensor, weights: Tensor | None = None) -> Statistics:
    weights = torch.ones(len(means)) if weights is None else weights
    return Statistics(means[None], torch.ones_like(means)[None], weights[None], torch.ones(1))


def test_means_that_are_rows_give_the_pool_away() -> None:
    found = told_apart(statistics(rows(0)), rows(0), rows(1))
    assert found == {"means": 400.0, "auc": 1.0, "matched": 1.0}


def test_means_of_large_groups_tell_nothing_about_members() -> None:
    groups = rows(0).reshape(4, 100, 4).mean(1)
    found = told_apart(statistics(groups), rows(0), rows(1))
    assert found["matched"] == 0
    assert abs(found["auc"] - 0.5) < 0.1


def test_components_without_weight_do_not_count() -> None:
    weights = torch.cat([torch.ones(1), torch.zeros(399)])
    assert told_apart(statistics(rows(0), weights), rows(0), rows(1))["means"] == 1
