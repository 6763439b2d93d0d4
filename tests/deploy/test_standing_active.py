"""The active party's own part of a standing service."""

from dataclasses import replace
from pathlib import Path

import pytest

from protoevfl.deploy.standing_active import StandingActive, serve_spec
from protoevfl.errors import UserError
from tests.deploy.standing import Standing, standing
from tests.deploy.test_site_job import NAMES, SHARED, SOME


@pytest.fixture
def companies(tmp_path: Path) -> Standing:
    return standing(tmp_path)


def test_the_specification_asks_for_single_rows_and_nothing_else(companies: Standing) -> None:
    spec = companies.spec
    assert (spec.run, spec.task, spec.base) == ("train-serve", "serve", "train")
    assert (spec.down, spec.up) == (("EmbedAt",), ("Embeddings",))
    assert "a standing service" in spec.review()
    with pytest.raises(UserError, match="kit of the active party"):
        serve_spec(companies.kit("shop"), "train")
    with pytest.raises(UserError, match="no run 'nothing'"):
        serve_spec(companies.kit("bank"), "nothing")


def test_a_run_that_was_not_finished_cannot_be_served(companies: Standing) -> None:
    spec = replace(companies.spec, base="other", run="other-serve")
    with pytest.raises(UserError, match="was not finished"):
        StandingActive(companies.kit("bank"), spec, companies.send)


def test_what_training_aligned_is_known(companies: Standing) -> None:
    partners = companies.active().partners()
    assert [p.name for p in partners.values()] == list(NAMES[1:])
    assert len(partners[1].universe.ids) == SHARED + SOME
    assert len(partners[2].universe.ids) == SHARED
    assert "C0" in partners[1].universe.ids


def test_ids_of_callers_are_spelt_as_in_alignment(companies: Standing) -> None:
    active = companies.active()
    assert active.spelt(["C1", " C2 ", 7, "7.0"]) == ["C1", "C2", "7", "7"]
    with pytest.raises(UserError):
        active.spelt([["a", "b"]])
    assert len(active.digest) == 16
