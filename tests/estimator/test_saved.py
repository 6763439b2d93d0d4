"""A model's run directory: what is not one is refused; models of before are read."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from protoevfl.errors import UserError
from protoevfl.estimator import saved

MANIFEST = {"classes": {"values": ["no", "yes"]}, "parameters": {"seed": 3}}


def run(**more: Any) -> Any:
    owner = SimpleNamespace(metrics={"history": [{"step": 1}]})
    return SimpleNamespace(
        manifest={**MANIFEST, **more},
        names=("bank",),
        need_owner=lambda: owner,
        need_party=lambda name: f"party {name}",
    )


def test_everything_of_the_manifest_comes_back() -> None:
    model = SimpleNamespace()
    features = {"count": 2, "names": ["bank__age", "bank__city"]}
    saved.restore(model, run(features=features, cost={"rounds": 1}, measured={"rows": 5}))
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.parties_ == {"bank": "party bank"}
    assert (model.n_features_in_, model.cost_, model.measured_) == (2, {"rounds": 1}, {"rows": 5})
    assert model.feature_names_in_.tolist() == features["names"]


def test_a_model_of_before_has_no_features() -> None:
    model = SimpleNamespace()
    saved.restore(model, run())
    assert model.history_ == [{"step": 1}]
    assert not hasattr(model, "n_features_in_")
    assert not hasattr(model, "measured_")


def test_a_run_of_files_is_not_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "open_run", lambda path: SimpleNamespace(manifest={}))
    with pytest.raises(UserError, match="use `protoevfl predict`"):
        saved.open_model(tmp_path)


def test_classes_of_other_kinds_are_not_written(tmp_path: Path) -> None:
    model = SimpleNamespace(classes_=np.array([1j, 2j]))
    with pytest.raises(UserError, match="texts or numbers"):
        saved.write_model(model, tmp_path / "model", False)
    assert not (tmp_path / "model").exists()


def test_columns_by_numpy_numbers_are_written_as_plain_ones() -> None:
    split = {"bank": np.arange(2), "shop": ["age", np.int64(3)], "gym": ("x",)}
    plain = saved._plain(split)
    assert json.loads(json.dumps(plain)) == {"bank": [0, 1], "shop": ["age", 3], "gym": ["x"]}
    assert saved._plain(2) == 2
    assert saved._plain(None) is None
