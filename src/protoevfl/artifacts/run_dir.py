"""The run directory: one folder per party, one for the label owner, and a manifest; written whole
or not at all.

    RUN/run.json    format, versions, when, parties in order, the SHA-256 of each folder's JSON file
    RUN/<party>/    that party's artefacts alone            RUN/owner/    the label owner's

Folders may be taken away (between companies each one has its own only): a run opens with those that
are there.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protoevfl.artifacts import integrity
from protoevfl.artifacts.owner import StoredOwner
from protoevfl.artifacts.party import StoredParty
from protoevfl.errors import UserError

MANIFEST, OWNER, FORMAT = "run.json", "owner", "protoevfl-run"


@dataclass(frozen=True)
class Run:
    """An opened run directory."""

    path: Path
    manifest: dict[str, Any]
    parties: dict[str, StoredParty]  # those whose folders are here
    owner: StoredOwner | None

    @property
    def names(self) -> tuple[str, ...]:
        """All parties of the run, here or not, in order."""
        return tuple(self.manifest["parties"])

    def need_owner(self) -> StoredOwner:
        if self.owner is None:
            raise UserError(
                f"{self.path} has no owner folder: only the company with the labels can do this"
            )
        return self.owner

    def need_party(self, name: str) -> StoredParty:
        if name not in self.names:
            raise UserError(f"this run has no party '{name}'; it has {', '.join(self.names)}")
        if name not in self.parties:
            raise UserError(
                f"{self.path} has no folder of {name}: that company keeps it; copy it here or "
                "leave it out"
            )
        return self.parties[name]


def write_run(
    out: Path, parties: Sequence[StoredParty], owner: StoredOwner, facts: dict[str, Any]
) -> None:
    """Write everything beside `out`, then rename; `facts` go into the manifest."""
    with integrity.whole(out) as folder:
        for party in parties:
            party.save(folder / party.name)
        owner.save(folder / OWNER)
        _write_manifest(folder, [p.name for p in parties], facts)


def add_to_run(
    folder: Path, names: Sequence[str], part: StoredParty | StoredOwner, facts: dict[str, Any]
) -> None:
    """One company's part of a run between companies, put or replaced whole; then a manifest of the
    parts that are here.

    names   all parties of the run, here or not, in order
    """
    name = OWNER if isinstance(part, StoredOwner) else part.name
    with integrity.whole(folder / name) as beside:
        part.save(beside)
    _write_manifest(folder, names, facts)


def _write_manifest(folder: Path, names: Sequence[str], facts: dict[str, Any]) -> None:
    """run.json, with the checksums of the parts that are here."""
    files = {name: own_file(folder, name) for name in (*names, OWNER)}
    manifest = {
        "format": FORMAT,
        "version": integrity.VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "parties": list(names),
        "folders": {name: integrity.sha256(file) for name, file in files.items() if file.is_file()},
        "versions": _versions(),
        **facts,
    }
    with integrity.whole_file(folder / MANIFEST) as beside:
        integrity.write_json(beside, manifest)


def own_file(folder: Path, name: str) -> Path:
    """The JSON file that seals a part of a run."""
    return folder / name / ("owner.json" if name == OWNER else "party.json")


def open_run(path: Path) -> Run:
    """Open a run directory and check every file in it."""
    path = Path(path)
    if not (path / MANIFEST).is_file():
        raise UserError(
            f"{path} is not a run directory (it has no {MANIFEST}); `protoevfl train` makes one"
        )
    with integrity.readable(path):
        manifest = integrity.read_json(path / MANIFEST)
        integrity.check_format(manifest, FORMAT, path)
        names = [str(name) for name in manifest["parties"]]
    for name, digest in manifest["folders"].items():
        own = own_file(path, name)
        if own.is_file() and integrity.sha256(own) != digest:
            raise UserError(f"{own} is damaged, or of another run (its checksum differs)")
    parties = {name: StoredParty.load(path / name) for name in names if (path / name).is_dir()}
    owner = StoredOwner.load(path / OWNER) if (path / OWNER).is_dir() else None
    return Run(path, manifest, parties, owner)


def _versions() -> dict[str, str]:
    import numpy
    import pyarrow
    import torch

    import protoevfl

    return {
        "protoevfl": protoevfl.__version__,
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "pyarrow": pyarrow.__version__,
        "python": platform.python_version(),
    }
