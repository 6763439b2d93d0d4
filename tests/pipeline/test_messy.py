"""Sixty-odd messy files: each is read as its clean twin, with a word where something was guessed or
left out, or is refused with a line that names the thing and what to do; none is silently wrong."""

import re
from pathlib import Path

import numpy as np
import pytest

from protoevfl.errors import UserError
from protoevfl.pipeline.check import check
from protoevfl.pipeline.one_process import prepare
from protoevfl.pipeline.prepare import Prepared
from tests.pipeline.messy import configure
from tests.pipeline.messy_cases import CASES


def prepared(folder: Path, name: str, clean: bool) -> Prepared:
    return prepare(configure(folder, CASES[name], clean))


def rows_of(world: Prepared) -> list[np.ndarray]:
    """Everything that training would see of the bank's file."""
    bank = world.parties[0].table
    labels = [world.labels, world.test_labels]
    return [part.numpy() for part in (bank.pool, bank.aligned, bank.query, *labels)]


def test_there_are_sixty_and_more() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.kind != "refused"])
def test_a_messy_file_is_read_as_its_clean_twin(tmp_path: Path, name: str) -> None:
    messy = rows_of(prepared(tmp_path / "messy", name, clean=False))
    clean = rows_of(prepared(tmp_path / "clean", name, clean=True))
    for one, other in zip(messy, clean, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.kind == "refused"])
def test_a_file_that_cannot_be_read_is_refused_with_a_remedy(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=CASES[name].words) as error:
        prepared(tmp_path, name, clean=False)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.kind == "refused"])
def test_check_shows_the_same_line_once(tmp_path: Path, name: str) -> None:
    if name == "nothing":
        pytest.skip("refused by the configuration, before any row is read")
    errors = check(configure(tmp_path, CASES[name], clean=False), with_estimate=False).errors
    assert len([line for line in errors if re.search(CASES[name].words, line)]) == 1
    assert len(set(errors)) == len(errors)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.kind == "said"])
def test_what_was_guessed_or_left_out_is_said(tmp_path: Path, name: str) -> None:
    report = check(configure(tmp_path, CASES[name], clean=False), with_estimate=False)
    assert not report.errors
    assert any(re.search(CASES[name].words, line) for line in report.warnings), report.warnings
