"""Parties with next to nothing: they train, or the refusal names party and column."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protoevfl.errors import UserError
from protoevfl.pipeline.simulate import train_files
from protoevfl.settings.config import Config, load

ROWS = 120
QUICK = {"warm.epochs": 2, "rounds.count": 2, "head.epochs": 3, "head.members": 1}
CONFIG = """
[label]
party = "bank"
column = "y"
[[party]]
name = "bank"
file = "bank.csv"
id = "id"
[[party]]
name = "insurer"
file = "second.csv"
id = "id"
"""


def companies(folder: Path, column: Callable[[int, float], str], of_class: int = 60) -> Config:
    """A bank with one number and labels, and an insurer with one column of the same customers."""
    rng = np.random.default_rng(3)
    y = (np.arange(ROWS) < of_class).astype(int)
    x, z = rng.normal(size=(2, ROWS)) + y
    bank = [f"{i},{y[i]},{x[i]:.3f}" for i in range(ROWS)]
    insurer = [f"{i},{column(i, z[i])}" for i in range(ROWS)]
    (folder / "bank.csv").write_text("id,y,x\n" + "\n".join(bank))
    (folder / "second.csv").write_text("id,z\n" + "\n".join(insurer))
    (folder / "protoevfl.toml").write_text(CONFIG)
    config = load(folder / "protoevfl.toml")
    return replace(config, method=replace(config.method, overrides=QUICK), device="cpu")


COLUMNS: dict[str, Callable[[int, float], str]] = {
    "number": lambda i, z: f"{z:.3f}",
    "flag": lambda i, z: str(int(z > 0)),
    "two categories": lambda i, z: "city" if z > 0 else "country",
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_party_with_one_column_trains(tmp_path: Path, kind: str) -> None:
    owner = train_files(companies(tmp_path, COLUMNS[kind]))
    assert owner.metrics["rows"] == 24
    assert owner.metrics["test"]["auc"] > 0.5


def test_five_rows_of_a_class_train(tmp_path: Path) -> None:
    owner = train_files(companies(tmp_path, COLUMNS["number"], of_class=6))
    assert owner.metrics["class_rows"] == {"0": 92, "1": 5}


def test_a_party_with_a_constant_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"insurer.*'z'"):
        train_files(companies(tmp_path, lambda i, z: "1"))
