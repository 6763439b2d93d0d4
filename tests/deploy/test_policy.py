"""Policies: who says no to what."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protoevfl.deploy import policy
from protoevfl.deploy.job_file import complete
from protoevfl.deploy.message_types import message_types
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError

SPEC = JobSpec(
    "run-1", ("bank", "shop"), down=("Learn",), up=("Learned",), privacy={"epsilon": 2.0}
)


COVERED = {"epsilon": 2.0, "clip": 1.0, "embedding_noise": 5.0}


def test_the_template_is_a_policy_and_accepts_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(policy.TEMPLATE.format(active="bank"))
    rules = Policy.read(tmp_path / "policy.toml")
    assert rules == Policy("bank")
    assert rules.objections(SPEC) == []


def test_the_default_lets_every_job_of_the_method_run_and_says_what_features_give_away() -> None:
    down, up = message_types("proto_evfl")
    spec = replace(SPEC, down=down, up=up)
    assert "SendFeatures" in down
    assert Policy("bank").objections(spec) == []
    assert "columns" in next(
        line for line in policy.TEMPLATE.splitlines() if "answer tells" in line
    )


def test_a_party_can_refuse_to_send_its_columns_and_is_told_when_they_are_asked_for() -> None:
    spec = replace(SPEC, down=("SendFeatures", "Embed"), up=("Embeddings",))
    strict = Policy("bank", receive=("WarmUp", "Embed", "Learn", "Describe"))
    assert strict.objections(spec) == ["it would receive SendFeatures"]
    assert "every value of the shared rows nearly exactly" in spec.review()
    assert "nearly exactly" not in SPEC.review()


def test_what_a_party_asks_only_itself_is_never_taken_from_another() -> None:
    """OwnFeatures would send columns as they are, OpenLabels would bring labels in clear."""
    inside = {"OwnFeatures", "OpenLabels"}
    assert not inside & {*Policy("bank").receive}
    sealed = complete(replace(SPEC, settings={"columns": "sealed"}, down=(), up=()))
    assert not inside & {*sealed.down, *sealed.up}


@pytest.mark.parametrize(
    ("rule", "change", "word"),
    [
        ({"active": "shop"}, {}, "lead"),
        ({}, {"method": "vanilla"}, "vanilla"),
        ({}, {"preset": "paper"}, "paper"),
        ({"max_rounds": 10}, {"rounds": 11}, "11 rounds"),
        ({}, {"up": ("Projections",)}, "Projections"),
        ({}, {"down": ("BackwardBatch",)}, "BackwardBatch"),
        ({"max_message_mb": 1}, {}, "1 MB"),
        ({"require_privacy": True}, {"privacy": COVERED | {"epsilon": None}}, "no privacy budget"),
        ({"require_privacy": True}, {"privacy": {"epsilon": 2.0}}, "would not be noisy"),
        ({"require_privacy": True}, {"privacy": COVERED, "up": ("Statistics",)}, "unseen.slot"),
        ({"max_epsilon": 1.0}, {}, "epsilon 1"),
        ({"allow_skip": False}, {"on_party_loss": "skip"}, "without this party"),
        ({"approved_only": True}, {}, "not yet approved"),
    ],
)
def test_each_rule_can_say_no(rule: dict[str, Any], change: dict[str, Any], word: str) -> None:
    spec = replace(SPEC, **change)
    rules = Policy(**{"active": "bank", **rule})
    (objection,) = rules.objections(spec)
    assert word in objection


def test_an_approved_digest_is_let_through() -> None:
    assert Policy("bank", approved_only=True, approved=(SPEC.digest(),)).objections(SPEC) == []


@pytest.mark.parametrize(
    "text", ['active = "b"\nmethds = []', "active = 3", "", "x = [", 'active="b"\nmax_rounds="9"']
)
def test_broken_policies_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(UserError, match=r"policy\.toml.*(no key|must be|needs the key|not valid)"):
        Policy.read(tmp_path / "policy.toml")
    with pytest.raises(UserError, match="cannot read"):
        Policy.read(tmp_path / "none.toml")


def test_a_guarantee_on_everything_can_be_had() -> None:
    settings = {"unseen.slot": False}
    spec = complete(JobSpec("r", ("bank", "shop"), settings=settings, privacy=COVERED))
    assert Policy("bank", require_privacy=True).objections(spec) == []
