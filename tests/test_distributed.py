"""Two processes of torchrun give the result of one: rows, a step's gradients, whole runs, the
command itself.

Tolerances: a step in double precision 1e-12; whole tiny runs in single precision 1e-3 in a
probability (seen: 1e-6), as between engines. Longer runs amplify rounding (Adam divides by the
gradient's size), no more than another number of threads does: the command's AUC is held to 0.03.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from protoevfl import distributed
from protoevfl.artifacts.run_dir import open_run
from protoevfl.pipeline.simulate import train_files
from protoevfl.progress import is_secondary_rank
from protoevfl.rows.example import write_example
from protoevfl.settings.config import load
from tests.pipeline.example import fast

ROOT = Path(__file__).parents[1]
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc_per_node",
    "2",
    "-m",
]
ALONE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
pytestmark = pytest.mark.xdist_group("torchrun")


def torchrun(*command: str) -> Any:
    """What two processes print together, as JSON."""
    done = subprocess.run(
        [*TORCHRUN, *command],
        cwd=ROOT,
        env={**os.environ, **ALONE},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def differences() -> dict[str, float]:
    """Largest difference between one process and two, by name."""
    found: dict[str, float] = torchrun("tests.distributed_worker")
    return found


def test_each_process_holds_its_share(differences: dict[str, float]) -> None:
    assert differences["held"] == 11  # of 23


def test_rows_come_from_whoever_holds_them(differences: dict[str, float]) -> None:
    rows = {name: d for name, d in differences.items() if name.startswith("rows/")}
    assert len(rows) == 9
    assert all(d < 1e-6 for d in rows.values()), rows
    assert rows["rows/tables/rows"] == rows["rows/images/rows"] == rows["rows/tables/columns"] == 0


def test_a_step_has_the_gradients_of_the_whole_batch(differences: dict[str, float]) -> None:
    step = {name: d for name, d in differences.items() if name.startswith("step/")}
    assert {
        "step/images/conv1.weight",
        "step/images/bn1.var",
        "step/tables/skip.weight",
    } <= step.keys()
    assert all(d < 1e-12 for d in step.values()), step


def test_whole_runs_end_alike(differences: dict[str, float]) -> None:
    runs = {name: d for name, d in differences.items() if name.startswith("run/")}
    assert len(runs) == 7
    assert all(d < 1e-3 for d in runs.values()), runs


def test_the_same_command_gives_the_same_run(tmp_path: Path) -> None:
    path = write_example(tmp_path, rows=600)
    few = {
        "warm.epochs": 2,
        "rounds.count": 1,
        "rounds.epochs": 1,
        "head.epochs": 3,
        "head.members": 2,
    }
    config = fast(load(path))
    config = replace(
        config, method=replace(config.method, overrides={**config.method.overrides, **few})
    )
    alone = train_files(replace(config, output=tmp_path / "alone"))
    given = [f"{name}={value}" for name, value in config.method.overrides.items()]
    told = torchrun("protoevfl", "train", str(path), "--out", str(tmp_path / "both"), "--json",
                    *(part for setting in given for part in ("--set", setting)))  # fmt: skip
    run = open_run(tmp_path / "both")  # written once, complete
    assert {p.name for p in tmp_path.iterdir() if p.is_dir()} >= {"alone", "both"}
    assert told["test"] == run.need_owner().metrics["test"]
    assert told["bytes"] == alone.metrics["bytes"]
    assert told["test"]["auc"] == pytest.approx(alone.metrics["test"]["auc"], abs=0.03)


def test_alone_nothing_is_dealt_or_split() -> None:
    rows = torch.rand(2, 5, 3)
    assert torch.equal(distributed.deal(list(rows), torch.device("cpu")), rows)
    assert distributed.count() == 1
    with distributed.splitting():
        assert torch.equal(distributed.split(lambda x: x + 1, rows), rows + 1)
    assert distributed.batch_rows() is None
    mean, spread = distributed.moments(rows, lambda x: 2 * x)
    torch.testing.assert_close(mean, 2 * rows.mean(1, keepdim=True))
    torch.testing.assert_close(spread, 2 * rows.std(1, keepdim=True))
    distributed.join("cpu")
    assert distributed.count() == 1


def test_only_the_first_process_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_secondary_rank()
    monkeypatch.setenv("RANK", "1")
    assert not is_secondary_rank()  # somebody else's RANK
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert is_secondary_rank()
    monkeypatch.setenv("RANK", "0")
    assert not is_secondary_rank()
