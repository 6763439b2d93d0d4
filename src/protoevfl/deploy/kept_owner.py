"""The active party's model at the end of a run: head and memory, so that predicting asks no journal to repeat itself.

Without it a prediction would train the head again from the journal, which a later version of the package need not do
bit for bit. A head of a kind that cannot be kept leaves no file; the journal serves then.
"""

from pathlib import Path

from torch import Tensor

from protoevfl.artifacts import head_io
from protoevfl.deploy.checkpoints import Checkpoint, CheckpointStore
from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner


def keep(folder: Path, owner: LabelOwner) -> None:
    """Write what `owner` has learnt, durable when it returns."""
    try:
        facts, tensors = head_io.pack(owner.head) if owner.head is not None else ({}, {})
    except UserError:  # not a head that can be kept
        return
    named = {f"head.{n}": t for n, t in tensors.items()} | {f"memory.{n}": t for n, t in owner.memory.items()}
    _store(folder).save(Checkpoint(0, named, {"head": facts}))


def take_up(folder: Path, owner: LabelOwner) -> bool:
    """Give a fresh owner what was kept; False where nothing was, or where it is damaged."""
    found = _store(folder).latest()
    if found is None:
        return False
    parts = {part: _of(found, part) for part in ("head.", "memory.")}
    owner.head = head_io.unpack(found.header["head"], parts["head."]) if found.header["head"] else None
    owner.memory = parts["memory."]
    return True


def _of(found: Checkpoint, part: str) -> dict[str, Tensor]:
    return {n.removeprefix(part): t for n, t in found.tensors.items() if n.startswith(part)}


def _store(folder: Path) -> CheckpointStore:
    return CheckpointStore(folder / "owner", keep=1)
