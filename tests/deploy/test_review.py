"""What a person reads before accepting a job: what leaves at each level of columns, in words that
are true."""

from pathlib import Path
from typing import Any

import pytest

from protoevfl.deploy.job_file import complete
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.review import ledger_of, review, sends
from protoevfl.deploy.spec import JobSpec

POLICY = Policy("bank")


def job(**changes: Any) -> JobSpec:
    return complete(JobSpec("credit", ("bank", "shop", "tele"), classes=2, **changes))


def said(**settings: Any) -> str:
    return " / ".join(sends(job(settings=settings), POLICY))


def test_the_open_level_says_that_columns_can_be_rebuilt() -> None:
    words = said()
    assert "64 numbers of each shared row" in words
    assert "every encoded column of these rows" in words
    assert "rebuild most columns" in words


def test_few_numbers_are_counted() -> None:
    words = said(columns="few", few=2)
    assert "2 rounded numbers of each shared row, once" in words
    assert "rebuild part of the columns" in words
    assert "encoded column" not in words


def test_the_sealed_level_speaks_of_scores_and_the_bound_not_of_embeddings() -> None:
    words = said(columns="sealed", **{"sealed.most_of_number": 0.25})
    assert "a score per class of each shared row, of at most 5 levels" in words
    assert "at most 0.25 of any number" in words
    assert "64 numbers" not in words
    assert "rebuild most columns" not in words
    exact = said(columns="sealed", **{"sealed.levels": 0})
    assert (
        "a score per class of each shared row, of any value (pictures: with noise), once" in exact
    )


@pytest.mark.parametrize("columns", ["open", "few", "sealed"])
def test_rows_to_be_predicted_are_bounded_by_the_policy(columns: str) -> None:
    assert f"at most {POLICY.max_query_rows:,}" in said(columns=columns)


def test_noise_is_named_with_its_size() -> None:
    privacy = {"clip": 2.0, "embedding_noise": 0.5}
    words = " / ".join(sends(job(privacy=privacy), POLICY))
    assert "clipped to 2, with noise of 0.5 times that" in words


def test_the_review_ends_with_the_policys_verdict(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, POLICY)
    accepted = review(job(), POLICY, ledger)
    assert "policy:         accepted" in accepted
    assert "no row has left" in accepted
    refused = review(job(settings={"warm.epochs": 0}), POLICY, ledger)
    assert "refused: " in refused
    assert "warm.epochs" in refused
