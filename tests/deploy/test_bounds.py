"""Bounds of settings: what shapes what leaves has them, delivered jobs are within, a party changes
them."""

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

SPEC = JobSpec("run-1", ("bank", "shop"), down=("Learn",), up=("Learned",))


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
