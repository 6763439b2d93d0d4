"""A fitted model as a run directory, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from protoevfl.artifacts import integrity
from protoevfl.artifacts.run_dir import MANIFEST, Run, open_run, write_run
from protoevfl.errors import UserError
from protoevfl.settings.method_choice import method_facts


def write_model(model: Any, path: Path, overwrite: bool) -> None:
    """One folder per party, one for the label owner; the manifest holds what the class itself
    knows."""
    integrity.check_free(path, overwrite, MANIFEST)
    classes = {"dtype": model.classes_.dtype.kind, "values": model.classes_.tolist()}
    if any(not isinstance(v, str | int | float | bool) for v in classes["values"]):
        raise UserError("only models whose classes are texts or numbers can be saved")
    parties = [model.parties_[name] for name in model.party_names_]
    names = model.feature_names_in_.tolist() if hasattr(model, "feature_names_in_") else None
    facts = {
        "method": method_facts(parties[0].method),
        "privacy": asdict(model.owner_.privacy),
        "seed": model.seed,
        "classes": classes,
        "features": {"count": model.n_features_in_, "names": names},
        "cost": model.cost_,
        "measured": getattr(model, "measured_", None),
        "parameters": {
            **model.get_params(deep=False),
            "parties": _plain(model.parties),
            "classes": None if model.classes is None else np.asarray(model.classes).tolist(),
        },
    }
    write_run(path, parties, model.owner_, facts)


def _plain(split: Any) -> Any:
    """`parties` as JSON has it: lists of names or numbers, none of them numpy's."""
    if not isinstance(split, Mapping):
        return split
    return {
        party: [c.item() if isinstance(c, np.generic) else c for c in columns]
        for party, columns in split.items()
    }


def open_model(path: Path) -> tuple[Run, dict[str, Any]]:
    """A run directory that `write_model` wrote, and the parameters of its model."""
    run = open_run(path)
    if "parameters" not in run.manifest:
        raise UserError(f"{path} was written by `protoevfl train`; use `protoevfl predict` with it")
    return run, run.manifest["parameters"]


def restore(model: Any, run: Run) -> None:
    """Everything that `fit` and `measure` set."""
    model.owner_, model.party_names_ = run.need_owner(), run.names
    model.parties_ = {name: run.need_party(name) for name in run.names}
    model.classes_ = np.array(run.manifest["classes"]["values"])
    model.history_ = model.owner_.metrics.get("history", [])
    model.cost_ = run.manifest.get("cost", {})
    features = run.manifest.get("features")
    if features is not None:
        model.n_features_in_ = features["count"]
        if features["names"] is not None:
            model.feature_names_in_ = np.array(features["names"], object)
    if run.manifest.get("measured") is not None:
        model.measured_ = run.manifest["measured"]
