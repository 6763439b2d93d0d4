"""A run on companies' own files, attacked as one of the built-in data sets is.

    own = of_config(load("protoevfl.toml"))       as `train` would run it
    own = of_run(open_run("run"), config)         as it was trained, on the same files

The files are read once; every simulation starts from the same rows.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from protoevfl.artifacts.run_dir import Run
from protoevfl.bench.world import World
from protoevfl.errors import UserError
from protoevfl.method import Method
from protoevfl.observer import SILENT, Observer
from protoevfl.pipeline.one_process import prepare
from protoevfl.pipeline.prepare import Prepared
from protoevfl.pipeline.simulate import method_and_privacy
from protoevfl.pipeline.train import owner_of
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.rows.table import Labels
from protoevfl.settings.config import Config
from protoevfl.settings.method_choice import CENTRAL, method_facts, method_from


@dataclass(frozen=True)
class OwnRun:
    """What is attacked, in place of a `RunConfig`."""

    name: str  # of the file or folder it comes from
    chosen: Method
    privacy: PrivacySettings
    prepared: Prepared
    seed: int

    @property
    def method(self) -> str:
        return self.chosen.name

    def identity(self) -> dict[str, Any]:
        """For the page's table of settings."""
        rows = {part.name: part.facts for part in self.prepared.parties}
        return {
            "source": self.name,
            "method": self.method,
            "labels": "shared" if self.prepared.own is None else "all",
            "classes": list(self.prepared.classes),
            **{f"rows of {name}": facts["rows"] for name, facts in rows.items()},
            **method_facts(self.chosen)["settings"],
        }

    def without_rounds(self) -> "OwnRun":
        """The same with nothing made of labels sent down, by Proto-EVFL where it is another."""
        facts = method_facts(self.chosen)
        is_proto_evfl = self.method == "proto_evfl"
        silent = {"rounds.count": 0, "columns": "open"}  # a sealed run sends labels down, sealed
        settings = {**facts["settings"], **silent} if is_proto_evfl else silent
        method = method_from({"name": "proto_evfl", "settings": settings})
        return replace(self, chosen=method, privacy=PrivacySettings())

    def world(self, device: str) -> World:
        """Rows, labels and a fresh owner."""
        ready = self.prepared
        owner = owner_of(
            self.chosen, ready.labels, len(ready.classes), len(ready.parties), self.seed,
            ready.unseen, ready.own, ready.further, device,
        )  # fmt: skip
        labels = Labels(len(ready.classes), ready.labels, ready.test_labels, unseen=ready.unseen)
        tables = [part.table for part in ready.parties]
        # own files are not split by a specification, and no figure of an own run names one
        return World(cast(Any, None), tables, labels, owner, self.seed)


def of_config(config: Config, observer: Observer = SILENT) -> OwnRun:
    """A configuration as `train` would run it."""
    method, privacy = method_and_privacy(config)
    return _own_run(config.path.name, config, method, privacy, config.seed, observer)


def of_run(
    run: Run, config: Config, observer: Observer = SILENT, split_seed: int | None = None
) -> OwnRun:
    """A trained run with its own settings, on the files of its configuration.

    split_seed   what chose its test rows, where that is not the run's seed: between companies it
                 is made of the active party's secret, and must not be in what the audit writes
    """
    owner = run.need_owner()
    names = [config.label.party, *(p.name for p in config.parties if p.name != config.label.party)]
    if names != list(owner.parties):
        raise UserError(
            f"{config.path} names the parties {', '.join(names)}, the run {run.path} "
            f"{', '.join(owner.parties)}; give the configuration it was trained with (--config)"
        )
    seed = int(run.manifest["seed"])
    seeded = replace(config, seed=seed if split_seed is None else split_seed)
    own = _own_run(str(run.path), seeded, owner.method, owner.privacy, seed, observer)
    if not torch.equal(own.prepared.labels, owner.labels):
        raise UserError(
            f"the files of {config.path} do not give the rows {run.path} was trained on: they "
            "have changed since, or it is another configuration (--config)"
        )
    return own


def _own_run(
    name: str,
    config: Config,
    method: Method,
    privacy: PrivacySettings,
    seed: int,
    observer: Observer,
) -> OwnRun:
    if method.name in CENTRAL:
        raise UserError(f"{method.name} has all rows in one place: nothing crosses")
    prepared = prepare(config, observer)
    if not len(prepared.test_labels):
        raise UserError(
            f"{config.path.name}: test = 0 leaves no rows to measure accuracy on; an audit needs "
            "some (test = 0.2)"
        )
    return OwnRun(name, method, privacy, prepared, seed)
