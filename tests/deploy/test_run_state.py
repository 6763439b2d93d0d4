"""What `deploy status` says of a run, at the active party and at another."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from protoevfl.deploy import run_state
from protoevfl.deploy.checkpoints import Checkpoint, CheckpointStore
from protoevfl.deploy.kit import Identity, Kit
from protoevfl.errors import UserError


def kit(folder: Path, name: str = "bank") -> Kit:
    return Kit(folder, Identity("p", name, "party", "B", "hub:1", "bank", ("bank", "shop")))


def led(folder: Path, facts: dict[str, Any]) -> str:
    where = kit(folder).run_folder("one")
    where.mkdir(parents=True, exist_ok=True)
    (where / "status.json").write_text(json.dumps(facts))
    return run_state.describe(kit(folder), "one")


def test_runs_come_the_oldest_first_and_files_are_none(tmp_path: Path) -> None:
    assert run_state.runs(kit(tmp_path)) == []
    for age, name in enumerate(("young", "middle", "old")):
        where = kit(tmp_path).run_folder(name)
        where.mkdir(parents=True)
        os.utime(where, (1000 - age, 1000 - age))
    (tmp_path / "runs" / "notes.txt").touch()
    assert run_state.runs(kit(tmp_path)) == ["old", "middle", "young"]


def test_an_unknown_run_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none yet"):
        run_state.describe(kit(tmp_path), "two")
    kit(tmp_path).run_folder("one").mkdir(parents=True)
    with pytest.raises(UserError, match="bank knows no run 'two'; its runs: one"):
        run_state.describe(kit(tmp_path), "two")


def test_the_active_party_knows_where_a_run_is_and_how_it_ended(tmp_path: Path) -> None:
    assert led(tmp_path, {}) == "run one: submitted, not begun, round 0"
    running = {
        "state": "running",
        "round": 3,
        "phase": "rounds",
        "step": 2,
        "steps": 4,
        "absent": ["shop"],
    }
    assert led(tmp_path, running) == "run one: running, round 3, rounds 2/4, away: shop"
    assert led(tmp_path, running | {"state": "done", "absent": []}) == "run one: done, round 3"
    failed = {"state": "failed", "round": 3, "error": "party shop did not answer"}
    assert led(tmp_path, failed) == "run one: failed, round 3: party shop did not answer"


def test_another_party_knows_the_last_round_it_answered(tmp_path: Path) -> None:
    shop = kit(tmp_path, "shop")
    shop.run_folder("one").mkdir(parents=True)
    assert run_state.describe(shop, "one") == "run one: asked, nothing answered yet"
    CheckpointStore(shop.run_folder("one") / "checkpoints").save(
        Checkpoint(5, {"x": torch.ones(2)})
    )
    assert run_state.describe(shop, "one") == "run one: answered round 5"
