"""Checkpoints: one safetensors file per round, whole or not there at all, with its checksum in its
header.

A round's file holds whatever tensors must outlive it and a small JSON header. The file is written
beside its place, synced and renamed, so a crash or a full disk leaves the earlier rounds as they
were; a file whose checksum does not fit is treated as missing. No file is ever unpickled.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protoevfl.deploy import durable
from protoevfl.errors import UserError

VERSION = 1
REPLY = "reply!"  # in a party's checkpoint: its answer to the round
_NAME = re.compile(r"round-(\d{6})\.safetensors")


class DamagedError(UserError):
    """A checkpoint that cannot be trusted."""


@dataclass(frozen=True)
class Checkpoint:
    """What a round left behind."""

    round: int
    tensors: Mapping[str, Tensor]
    header: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of one run at one party; `keep` rounds are kept, all of them where it is
    None."""

    folder: Path
    keep: int | None = 3

    def path(self, number: int) -> Path:
        return self.folder / f"round-{number:06d}.safetensors"

    def rounds(self) -> list[int]:
        """Numbers of the rounds on disk, rising; damaged ones included."""
        if not self.folder.is_dir():
            return []
        found = (_NAME.fullmatch(entry.name) for entry in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def save(self, checkpoint: Checkpoint) -> None:
        """Durable when it returns; older rounds beyond `keep` are dropped only afterwards."""
        durable.write(self.path(checkpoint.round), _encode(checkpoint))
        if self.keep is not None:
            for number in self.rounds()[: -self.keep]:
                self.path(number).unlink(missing_ok=True)

    def load(self, number: int) -> Checkpoint:
        """The checkpoint of a round, or DamagedError."""
        path = self.path(number)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DamagedError(f"cannot read {path}: {error.strerror}") from None
        return _decode(data, number, path)

    def damaged(self) -> list[int]:
        """Rounds whose file cannot be used, newer than the newest whole one."""
        latest = self.latest()
        return [n for n in self.rounds() if latest is None or n > latest.round]

    def latest(self) -> Checkpoint | None:
        """The newest whole checkpoint; damaged files are passed over (`damaged` names them)."""
        for number in reversed(self.rounds()):
            try:
                return self.load(number)
            except DamagedError:
                continue
        return None


def party_state(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """What a party's checkpoint has of the party itself."""
    return {name: tensor for name, tensor in checkpoint.tensors.items() if name != REPLY}


def blob(data: bytes) -> Tensor:
    """Bytes as a tensor (n,), to be kept in a checkpoint."""
    return (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.zeros(0, dtype=torch.uint8)
    )


def unblob(tensor: Tensor) -> bytes:
    """The inverse of `blob`."""
    return tensor.contiguous().numpy().tobytes()


def digest(tensors: Mapping[str, Tensor], header: str) -> str:
    """SHA-256 over names, types, shapes, values and the JSON header."""
    total = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(f"\0{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        if tensor.numel():
            total.update(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))  # type: ignore[arg-type]
    return total.hexdigest()


def _encode(checkpoint: Checkpoint) -> bytes:
    from safetensors.torch import save

    facts = {"version": VERSION, "round": checkpoint.round, **checkpoint.header}
    header = json.dumps(facts, sort_keys=True)
    tensors = {
        name: t.detach().cpu().contiguous().clone() for name, t in checkpoint.tensors.items()
    }
    data: bytes = save(tensors, metadata={"header": header, "sha256": digest(tensors, header)})
    return data


def _decode(data: bytes, number: int, path: Path) -> Checkpoint:
    from safetensors.torch import load

    try:
        length = int.from_bytes(data[:8], "little")
        meta = json.loads(data[8 : 8 + length])["__metadata__"]
        header, sha = meta["header"], meta["sha256"]
        facts = json.loads(header)
        tensors = load(data)
    except Exception:
        raise DamagedError(f"{path} is damaged: not a checkpoint") from None
    if digest(tensors, header) != sha:
        raise DamagedError(f"{path} is damaged: its checksum does not fit")
    if facts.pop("version") != VERSION or facts.pop("round") != number:
        raise DamagedError(f"{path} is of another version or round")
    return Checkpoint(number, tensors, facts)
