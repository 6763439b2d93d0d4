"""Files that survive a crash: written beside their place, synced, renamed; a failed write leaves
the old file."""

import os
from contextlib import suppress
from pathlib import Path

from protoevfl.errors import UserError


class DiskError(UserError):
    """A file could not be written; `short` names no path and may be shown to others."""

    def __init__(self, text: str, short: str) -> None:
        super().__init__(text)
        self.short = short


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` by `data` all at once, or leave it as it is and raise DiskError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        text = f"cannot write {path}: {error.strerror}; {_advice(error)}"
        raise DiskError(text, f"it cannot write to its disk ({error.strerror})") from None


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable (a no-op where folders cannot be opened)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _advice(error: OSError) -> str:
    import errno

    known = {
        errno.ENOSPC: "free some disk space, then `protoevfl deploy resume`",
        errno.EDQUOT: "free some of your disk quota, then `protoevfl deploy resume`",
        errno.EROFS: "the disk is read-only; make the folder writable, then `protoevfl deploy resume`",
        errno.EACCES: "make the folder writable for this user, then `protoevfl deploy resume`",
        errno.EPERM: "make the folder writable for this user, then `protoevfl deploy resume`",
        errno.EMFILE: "too many open files; raise the limit (ulimit -n), then `protoevfl deploy resume`",
    }
    return known.get(error.errno or 0, "mend the disk, then `protoevfl deploy resume`")
