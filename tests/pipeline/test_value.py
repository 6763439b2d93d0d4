"""Shapley values: the axioms, a slow reference over all orders, AUC with weights, intervals."""

import itertools
import math

import pytest
import torch

from protoevfl.artifacts.owner import TestRows
from protoevfl.artifacts.run_dir import Run
from protoevfl.core import metrics
from protoevfl.core.decisions import weighted_auc
from protoevfl.errors import UserError
from protoevfl.pipeline.value import shapley, value


def slow(v: torch.Tensor, parties: int) -> torch.Tensor:
    """The mean gain of a party over all orders in which the parties could join."""
    phi = torch.zeros(parties, dtype=v.dtype)
    for order in itertools.permutations(range(parties)):
        code = 0
        for m in order:
            phi[m] += v[code | 1 << m] - v[code]
            code |= 1 << m
    return phi / math.factorial(parties)


@pytest.mark.parametrize("parties", [1, 2, 3, 5])
def test_the_weights_give_the_mean_over_all_orders(parties: int) -> None:
    v = torch.randn(
        1 << parties, dtype=torch.float64, generator=torch.Generator().manual_seed(parties)
    )
    assert torch.allclose(shapley(v), slow(v, parties))
    assert torch.isclose(shapley(v).sum(), v[-1] - v[0])


def test_a_party_that_changes_nothing_is_worth_nothing_and_twins_the_same() -> None:
    v = torch.zeros(8, dtype=torch.float64)
    for code in range(8):
        v[code] = {0: 0.0, 1: 0.6, 2: 0.6, 3: 0.8}[code & 3]  # parties 0 and 1 alike, party 2 idle
    phi = shapley(v)
    assert torch.allclose(phi, torch.tensor([0.4, 0.4, 0.0], dtype=torch.float64))


def test_weighted_auc_with_equal_weights_is_auc_and_counts_as_repeated_rows() -> None:
    source = torch.Generator().manual_seed(0)
    scores = torch.randint(8, (40,), generator=source).double()  # many ties
    labels = torch.randint(2, (40,), generator=source)
    counts = torch.randint(1, 4, (40,), generator=source)
    both = torch.stack([torch.ones(40, dtype=torch.float64), counts.double()])
    plain, weighted = weighted_auc(torch.stack([-scores, scores], 1), labels, both)
    assert float(plain) == pytest.approx(metrics.auc(scores, labels))
    assert float(weighted) == pytest.approx(
        metrics.auc(scores.repeat_interleave(counts), labels.repeat_interleave(counts))
    )


@pytest.mark.parametrize("metric", ["accuracy", "auc"])
def test_values_of_a_run_add_up_and_lie_in_their_intervals(run: Run, metric: str) -> None:
    owner = run.need_owner()
    worth = value(owner, owner.test, metric, draws=200)
    assert sum(s.value for s in worth.shares) == pytest.approx(worth.everyone - worth.nobody)
    assert worth.everyone == pytest.approx(owner.metrics["test"][metric])
    assert worth.subsets["bank+telco"] == pytest.approx(
        owner.metrics["subsets"]["bank+telco"][metric]
    )
    assert all(s.low <= s.value <= s.high and s.high - s.low < 0.5 for s in worth.shares)
    # the bank is where counting begins
    assert [s.party for s in worth.shares] == ["insurer", "telco"]
    assert [s.without for s in worth.shares] == [
        worth.subsets[n] for n in ("bank+telco", "bank+insurer")
    ]
    assert (worth.start, worth.nobody) == ("bank", pytest.approx(owner.metrics["alone"][metric]))


def test_more_rows_give_narrower_intervals_and_the_same_seed_the_same(run: Run) -> None:
    owner, test = run.need_owner(), run.need_owner().test
    assert test.own is not None
    embeddings = {m: f.repeat(9, 1) for m, f in test.embeddings.items()}
    many = TestRows(embeddings, test.labels.repeat(9), test.own.repeat(9, 1))
    one, nine = value(owner, test, "accuracy", 300), value(owner, many, "accuracy", 300)
    width = [sum(s.high - s.low for s in w.shares) for w in (one, nine)]
    assert width[0] / width[1] == pytest.approx(3, rel=0.3)  # the square root of nine
    assert value(owner, test, "accuracy", 300) == one


def test_what_cannot_be_measured_is_refused(run: Run) -> None:
    owner, test = run.need_owner(), run.need_owner().test
    with pytest.raises(UserError, match="accuracy or auc"):
        value(owner, test, "f1")
    one = TestRows(
        {m: f[:4] for m, f in test.embeddings.items()}, torch.zeros(4, dtype=torch.int64)
    )
    with pytest.raises(UserError, match="one class only"):
        value(owner, one)
