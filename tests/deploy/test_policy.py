"""Policies: who says no to what."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from protoevfl.deploy import bounds, policy
from protoevfl.deploy.job_file import complete
from protoevfl.deploy.message_types import message_types
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.validation import dotted

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


# ------------------------------------------------------------ settings of the method


def test_every_delivered_job_is_accepted_whatever_the_rows() -> None:
    for dataset in ("table", "digits", "fashion_mnist", "modelnet10", "adult", "credit"):
        method = policy.method_of(SPEC, dataset)
        assert bounds.objections(method, [], {}) == [], dataset
    assert Policy("bank").objections(complete(JobSpec("r", ("bank", "shop")))) == []
    assert Policy("bank").objections(complete(JobSpec("r", ("bank", "shop"), "probe"))) == []


def test_every_setting_that_a_party_uses_has_bounds() -> None:
    """A new setting must be put into one of the two lists before a job may change it."""
    names = [name for name, _ in dotted(asdict(policy.method_of(SPEC)))]
    owner = bounds.OWNER["proto_evfl"]
    for name in names:
        free = name in owner or f"{name.split('.')[0]}." in owner
        assert free != (name in bounds.BOUNDS["proto_evfl"]), name
    assert set(bounds.BOUNDS["proto_evfl"]) <= set(names)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"warm.epochs": 0, "rounds.count": 0}, "warm.epochs = 0, accepted is 5 to 500"),  # D1
        ({"unseen.components": 5000}, "unseen.components = 5000, accepted is 1 to 40"),  # D3
        ({"warm.lr": 1e-12}, "warm.lr"),  # as good as no epoch
        ({"warm.batch": 10**9}, "warm.batch"),
        ({"width": 4096}, "width"),
        ({"layers": ["output", "input"]}, "layers"),
        ({"table": "mlp5"}, "table = mlp5, accepted is one of skip"),
        ({"rounds.count": 1000}, "rounds.count"),
        ({"no.such": 1}, "cannot be used"),
    ],
)
def test_settings_that_would_give_more_away_are_refused(
    settings: dict[str, Any], word: str
) -> None:
    (objection,) = Policy("bank").objections(replace(SPEC, settings=settings))
    assert word in objection


def test_what_only_the_active_party_computes_is_its_own_business() -> None:
    settings = {"head.epochs": 3, "head.members": 1, "own.steps": 7, "rounds.rho": 0.1}
    assert Policy("bank").objections(replace(SPEC, settings=settings)) == []


def test_a_party_can_widen_and_narrow_bounds(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    text = policy.TEMPLATE.format(active="bank")
    path.write_text(text + '"warm.epochs" = [0, 3]\nlayers = ["output"]\n')
    rules = Policy.read(path)
    assert rules.objections(replace(SPEC, settings={"warm.epochs": 0})) == []
    assert len(rules.objections(replace(SPEC, settings={"layers": ["output", "hidden"]}))) == 2
    for wrong in ("[3, 0]", "[1]", "[]", '["a", 1]'):
        path.write_text(text + f'"warm.epochs" = {wrong}\n')
        with pytest.raises(UserError, match="must be"):
            Policy.read(path)


def test_other_methods_run_as_delivered_unless_the_party_bounds_what_a_job_changes() -> None:
    down, up = message_types("vanilla")
    spec = replace(SPEC, method="vanilla", down=down, up=up)
    open_to = Policy("bank", methods=("vanilla",), send=up, receive=down)
    assert open_to.objections(spec) == []
    changed = replace(spec, settings={"epochs": 3})
    assert open_to.objections(changed) == ["epochs is not a setting that a job may change here"]
    bounded = replace(open_to, settings={"epochs": [1, 5]})
    assert bounded.objections(changed) == []


def test_a_guarantee_on_everything_can_be_had() -> None:
    settings = {"unseen.slot": False}
    spec = complete(JobSpec("r", ("bank", "shop"), settings=settings, privacy=COVERED))
    assert Policy("bank", require_privacy=True).objections(spec) == []
