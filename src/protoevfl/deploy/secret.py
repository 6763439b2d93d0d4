"""A party's own secret: 256 bits that start everything random at it, and that nobody else knows.

KIT/secret.key is drawn on the party's machine when it is first needed (the authority that made the
kit never had it), readable by this user alone, and never sent. What a run needs is derived from it:

    key of a purpose = HMAC-SHA256(secret, "purpose / run / ...")

so a run that is rebuilt after a crash repeats itself bit for bit, and no run shares a draw or a mask
with another. Keep a copy with the kit's backup: without it no run can be resumed.
"""

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from protoevfl.deploy import durable
from protoevfl.errors import UserError

FILE, SIZE = "secret.key", 32


def own_secret(folder: Path) -> bytes:
    """The secret of the kit in `folder`, drawn on first use."""
    path = folder / FILE
    if not path.exists():
        drawn = path.with_name(f".{FILE}.{secrets.token_hex(8)}")
        durable.write(drawn, secrets.token_bytes(SIZE))
        # another process of this kit may draw at the same moment: the first link stays
        with suppress(FileExistsError):
            os.link(drawn, path)
        drawn.unlink(missing_ok=True)
        durable.sync_folder(folder)
    try:
        secret = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if len(secret) != SIZE:
        raise UserError(
            f"{path} is damaged: {len(secret)} bytes instead of {SIZE}; restore it from a copy, or "
            "delete it and begin new runs"
        )
    return secret


def derived(folder: Path, *purpose: str) -> bytes:
    """(32 bytes) the key of one purpose; names must not contain a line break."""
    return hmac.digest(own_secret(folder), "\n".join(purpose).encode(), hashlib.sha256)


def run_seed(folder: Path, run: str) -> int:
    """The seed of everything random in a run at this party but its noise."""
    return int.from_bytes(derived(folder, "seed", run), "big")
