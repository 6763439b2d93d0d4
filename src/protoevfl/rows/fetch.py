"""Where data files are: the given folder, the Debian place, the user cache, and last the official
source.

A download is checked by the sha256 of its *content*: the Debian package packs the same
Fashion-MNIST bytes anew, so a hash of the packed file would accept only one of the two. The file is
written beside its place and renamed when complete, so an interrupted download leaves nothing that
could be read.
"""

import gzip
import hashlib
import http.client
import os
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from protoevfl.errors import UserError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
TIMEOUT = 30.0  # seconds without an answer
# what damaged files raise
UNREADABLE = (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile)
LARGEST = 256 * 2**20  # bytes; the largest true file unpacks to 47 MB


@dataclass(frozen=True)
class Remote:
    """One file: its name on disk, where it comes from, and how to know that it is the right one."""

    file: str
    urls: tuple[str, ...]
    sha256: str  # of the content, unpacked
    unpack: Callable[[bytes], bytes]  # the downloaded bytes -> the content that is stored gzipped
    advice: str  # how to get the file by hand


def gunzip(packed: bytes) -> bytes:
    """The content of a gzip file, refused when it is larger than any file we expect.

    >>> gunzip(gzip.compress(b"rows"))
    b'rows'
    """
    content = zlib.decompressobj(wbits=31).decompress(packed, LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError("the file unpacks to more than any data set here holds")
    return content


def cache_dir() -> Path:
    """The user's cache: $XDG_CACHE_HOME/protoevfl, else ~/.cache/protoevfl."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "protoevfl"


def _places(root: str | Path | None = None) -> list[Path]:
    """Folders in the order they are searched; `root` takes the place of $PROTOEVFL_DATA."""
    first = root if root is not None else os.environ.get("PROTOEVFL_DATA")
    return [*([Path(first)] if first else []), DEBIAN, cache_dir()]


def find(file: str, root: str | Path | None = None) -> Path | None:
    """The first place that has `file` (also in a sub-folder fashion-mnist), or None."""
    for place in _places(root):
        for path in (place / file, place / "fashion-mnist" / file):
            if path.is_file():
                return path
    return None


def obtain(remote: Remote, root: str | Path | None = None) -> Path:
    """The path of a file, downloaded into the user cache when no place has it."""
    path = find(remote.file, root)
    if path is not None:
        return path
    tried = []
    for url in remote.urls:
        try:
            return _store(remote, _download(url, remote.file))
        except (*UNREADABLE, http.client.HTTPException) as error:
            tried.append(f"{url} ({error})")
    raise missing(remote.file, root, tried, remote.advice)


def missing(file: str, root: str | Path | None, tried: list[str], advice: str) -> UserError:
    """The error that says where a file was looked for and how to get it."""
    folders = ", ".join(str(place) for place in _places(root))
    unset = (
        ""
        if root is not None or os.environ.get("PROTOEVFL_DATA")
        else "$PROTOEVFL_DATA (not set), "
    )
    online = f"; download failed: {'; '.join(tried)}" if tried else ""
    return UserError(f"{file} not found in {unset}{folders}{online}. {advice}")


def _download(url: str, title: str) -> bytes:
    """The bytes behind a URL, with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    bars = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with (
        urllib.request.urlopen(url, timeout=TIMEOUT) as reply,
        Progress(*bars, console=Console(stderr=True), transient=True) as bar,
    ):
        size = int(reply.headers.get("Content-Length") or 0)
        task = bar.add_task(title, total=size or None)
        chunks: list[bytes] = []
        size_so_far = 0
        while chunk := reply.read(1 << 18):
            chunks.append(chunk)
            size_so_far += len(chunk)
            bar.update(task, advance=len(chunk))
            if size_so_far > LARGEST:
                raise ValueError("larger than any data set here")
    return b"".join(chunks)


def _store(remote: Remote, packed: bytes) -> Path:
    """Checks what came and puts it into the user cache, complete or not at all."""
    content = remote.unpack(packed)
    digest = hashlib.sha256(content).hexdigest()
    if digest != remote.sha256:
        raise ValueError(
            f"its content has sha256 {digest[:12]}..., expected {remote.sha256[:12]}..."
        )
    target = cache_dir() / remote.file
    write_whole(target, gzip.compress(content, compresslevel=6, mtime=0))
    return target


def write_whole(target: Path, content: bytes) -> None:
    """Writes a file beside its place, then renames it: a reader never sees a part of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
