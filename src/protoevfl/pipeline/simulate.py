"""`protoevfl train` and `protoevfl align` in one process: from a configuration to a run
directory."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from protoevfl import distributed
from protoevfl.artifacts import integrity
from protoevfl.artifacts.owner import StoredOwner
from protoevfl.artifacts.run_dir import MANIFEST, write_run
from protoevfl.distributed import choose_device
from protoevfl.method import Method
from protoevfl.observer import SILENT, Observer
from protoevfl.pipeline.one_process import (
    alignment_folder,
    ids_of,
    kind_of_run,
    party_order,
    prepare,
)
from protoevfl.pipeline.prepare import Prepared
from protoevfl.pipeline.threads import is_small, one_thread
from protoevfl.pipeline.train import Trained, stored_party, train
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.progress import is_secondary_rank
from protoevfl.rows.align import align
from protoevfl.rows.alignment import Alignment
from protoevfl.settings.config import Config, resolve
from protoevfl.settings.method_choice import choose_method, method_facts, privacy_settings


def align_files(
    config: Config, observer: Observer = SILENT, overwrite: bool = False
) -> dict[str, dict[str, Alignment]]:
    """Private set intersection of the active party with each other one, every message made and
    checked.

    The result of a pair lies in a folder of the other party's name, one folder per side.
    """
    out = alignment_folder(config)
    integrity.check_free(out, overwrite)
    files = resolve(config)
    active, *others = party_order(config)
    rules = config.alignment
    ids = {name: ids_of(config, files[name]) for name in (active, *others)}
    pairs = {}
    with integrity.whole(out) as folder:
        for other in others:
            pair = {name: ids[name] for name in (active, other)}
            pairs[other] = align(pair, active, rules.minimum, rules.processes, observer.progress)
            for name, alignment in pairs[other].items():
                alignment.save(folder / other / name)
    return pairs


def train_files(
    config: Config,
    out: Path | None = None,
    *,
    overwrite: bool = False,
    observer: Observer = SILENT,
) -> StoredOwner:
    """Train on the files of a configuration and write the run directory; returns the owner with its
    metrics.

    Under torchrun its processes train together, and the first one writes.
    """
    out = out or config.output
    integrity.check_free(out, overwrite, MANIFEST)
    method, privacy = method_and_privacy(config)
    device = choose_device(config.device)
    distributed.join(device)
    world = prepare(config, observer)
    for note in world.notes:
        observer.note(note)
    tables = [p.table for p in world.parties]
    shapes = [tuple(part.shape) for table in tables for part in (table.pool, table.aligned)]
    with one_thread(is_small(shapes)):
        trained = train(
            method,
            tables,
            world.labels,
            len(world.classes),
            unseen=world.unseen,
            own=world.own,
            further=world.further,
            privacy=privacy,
            seed=config.seed,
            device=device,
            observer=observer,
        )
        facts: dict[str, Any] = {
            "device": device,
            "notes": world.notes,
            "class_rows": class_rows(world),
        }
        names = [p.name for p in world.parties]
        query = world.parties[0].table.query
        owner = trained.stored_owner(
            names, world.classes, config.label, world.test_labels, facts, query
        )
        if len(world.validation_labels):
            owner.metrics["validation"] = _validation_metrics(trained, owner, world)
    rules = (config.id_rules, config.alignment.on_bad_ids)
    parties = [
        stored_party(part, m, *rules, method, privacy, trained.parties[m].state())
        for m, part in enumerate(world.parties)
    ]
    facts = {
        "method": method_facts(method),
        "privacy": asdict(privacy),
        "seed": config.seed,
        "one_process": True,  # nothing left this machine: bytes are those that would cross
    }
    if not is_secondary_rank():
        write_run(out, parties, owner, facts)
    return owner


def method_and_privacy(config: Config) -> tuple[Method, PrivacySettings]:
    """What a configuration asks for, checked."""
    wanted, kind = config.method, kind_of_run(config)
    method = choose_method(wanted.name, wanted.preset, kind, wanted.overrides, config.privacy)
    return method, privacy_settings(
        config.privacy, wanted.name, wanted.preset, kind, wanted.overrides
    )


def class_rows(world: Prepared) -> dict[str, int]:
    """Labelled training rows of each class."""
    counts = torch.bincount(world.known_labels.cpu(), minlength=len(world.classes)).tolist()
    return dict(zip(world.classes, counts, strict=True))


def _validation_metrics(trained: Trained, owner: StoredOwner, world: Prepared) -> dict[str, Any]:
    """The metrics on the rows kept aside to compare settings; they stand behind the test rows."""
    first = len(world.test_labels)
    rows = {m: f[first:] for m, f in trained.query.items()}
    everyone = torch.ones(len(owner.parties), len(world.validation_labels), dtype=torch.bool)
    own = None if world.own is None else world.own.query[first:]
    p = owner.probabilities(rows, everyone, own)
    return owner.evaluate(p, world.validation_labels)
