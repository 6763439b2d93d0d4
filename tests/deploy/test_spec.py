"""Specifications: what is proposed to the parties, in words, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest

from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError

SPEC = JobSpec(
    "run-1", ("bank", "shop"), down=("Learn",), up=("Learned",), privacy={"epsilon": 2.0}
)


def test_a_specification_survives_its_journey() -> None:
    again = JobSpec.from_dict(SPEC.to_dict())
    assert again == SPEC
    assert again.digest() == SPEC.digest() != replace(SPEC, seed=1).digest()
    assert SPEC.digest() in SPEC.review()


@pytest.mark.parametrize(
    "change",
    [{"run": "a/b"}, {"parties": ["bank"]}, {"parties": ["bank", "bank"]}, {"parties": "bank"}, {"rounds": 0},
     {"rounds": "3"}, {"rounds": True}, {"code": "x"}, {"on_party_loss": "hope"}, {"privacy": {"epsilom": 1.0}},
     {"settings": {"x": object()}}, {"settings": []}, {"max_bytes": 1 << 40}, {"task": "shell"}],
)  # fmt: skip
def test_ill_formed_specifications_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        JobSpec.from_dict({**SPEC.to_dict(), **change})


def test_the_review_tells_what_a_person_must_know() -> None:
    words = replace(SPEC, settings={"rounds.count": 2}).review()
    for word in (
        "bank",
        "shop",
        "Learn",
        "Learned",
        "epsilon 2",
        "rounds.count = 2",
        "at most 100",
    ):
        assert word in words
    assert "no limit" in replace(SPEC, privacy={}).review()
    few = replace(SPEC, down=("SendFeatures",), settings={"columns": "few"}).review()
    assert "a few rounded numbers per shared row" in few


def test_a_prediction_names_the_run_it_predicts_with_and_training_does_not() -> None:
    later = replace(SPEC, run="run-2", task="predict", base="run-1", down=("Embed",))
    assert later.base == "run-1"
    # a prediction asks for embeddings; where training asked for columns these are columns
    assert "the same leaves as of the rows of run run-1" in later.review()
    for change in ({"task": "predict"}, {"base": "run-1"}):
        with pytest.raises(UserError, match="base"):
            replace(SPEC, **change)
