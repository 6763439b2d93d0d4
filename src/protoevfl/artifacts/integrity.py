"""Folders that check themselves, and directories that appear whole or not at all.

`seal` writes the JSON file that lists the SHA-256 of every other file of its folder; `unseal`
compares. `whole` hands out a hidden directory and renames it to its name when the block ends well;
after an error or Ctrl-C nothing is left.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from protoevfl.errors import UserError

VERSION = 1
LEAST_ROOM = 4 << 20  # bytes that must be free where a run or predictions are to be written


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return facts


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save

    path.write_bytes(save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load

    tensors: dict[str, Tensor] = load(path.read_bytes())
    return tensors


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path, name: str, kind: str, facts: Mapping[str, Any]) -> None:
    """Write `name` with the facts and the checksums of all other files of the folder."""
    files = {p.name: sha256(p) for p in sorted(folder.iterdir()) if p.is_file() and p.name != name}
    write_json(folder / name, {"format": kind, "version": VERSION, "files": files, **facts})


def unseal(folder: Path, name: str, kind: str) -> dict[str, Any]:
    """The facts that `seal` wrote, after checking format, version and every checksum."""
    with readable(folder):
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} holds no {name}: it is not a folder of a run, or not a complete one"
            )
        facts = read_json(folder / name)
        check_format(facts, kind, folder)
        for file, digest in facts["files"].items():
            if Path(file).name != file or not (folder / file).is_file():
                raise UserError(f"{folder} lacks {file}; copy the folder again as a whole")
            if sha256(folder / file) != digest:
                raise UserError(
                    f"{folder / file} is damaged or was changed (its checksum differs); copy it "
                    "again"
                )
        return facts


def check_format(facts: Mapping[str, Any], kind: str, folder: Path) -> None:
    if facts.get("format") != kind:
        raise UserError(f"{folder} is not of the format {kind}")
    if facts.get("version") != VERSION:
        raise UserError(
            f"{folder} is of format version {facts.get('version')}, this program reads {VERSION}"
        )


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Turns what damaged files raise into one line."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # whatever a damaged JSON or safetensors file raises
        raise UserError(f"{folder} is damaged ({type(error).__name__}); copy it again") from None


def check_free(out: Path, overwrite: bool, ours: str | None = None) -> None:
    """Refuse, before any work, an output that exists or has no room; with `overwrite` one that is
    no run of ours."""
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists; give another --out, or --overwrite to replace it")
    if out.exists() and ours is not None and not (out / ours).is_file():
        raise UserError(f"{out} is not a run directory and is not replaced; give another --out")
    _check_room(out)


def _check_room(out: Path) -> None:
    """The folder that is to hold the output must take files: found out before, not after training."""
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise UserError(f"cannot write {out}: {folder} is not a folder; give another --out")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {out}: no permission in {folder}; give another --out")
    free = shutil.disk_usage(folder).free
    if free < LEAST_ROOM:
        raise UserError(
            f"cannot write {out}: {free / 1e6:.1f} MB are free there; make room, or give another "
            "--out"
        )


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turns what a full disk or a folder without permission raises into one line."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {out}: {error.strerror or error}; nothing was kept of it. Make room or "
            "give another place"
        ) from None


@contextmanager
def whole(out: Path) -> Iterator[Path]:
    """A hidden directory beside `out` that becomes `out` (replacing what is there) when the block
    ends well."""
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            yield part
            old = out.with_name(f".{out.name}.{os.getpid()}.old")
            if out.exists():
                out.rename(old)
            part.rename(out)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def whole_file(out: Path) -> Iterator[Path]:
    """The same for one file; the hidden file keeps the suffix."""
    part = out.with_name(f".part-{os.getpid()}-{out.name}")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            part.replace(out)
        finally:
            part.unlink(missing_ok=True)
