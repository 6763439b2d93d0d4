"""Durable files: the old content or the new one, whatever happens in between, and errors that say
what to do."""

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from protoevfl.deploy.durable import DiskError, sync_folder, write
from protoevfl.errors import UserError

WRITER = """
import sys
from pathlib import Path
from protoevfl.deploy.durable import write
path, number = Path(sys.argv[1]), 0
while True:
    write(path, (b"%09d" % number) * 20_000)
    number += 1
"""


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(
    "data", [b"", b"\0", os.urandom(100_000)], ids=["nothing", "a zero", "much"]
)
def test_what_is_written_is_read_and_nothing_else_is_left(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "new" / "folders" / "Zustand größer.json"
    write(path, data)
    write(path, data + b"!")
    assert path.read_bytes() == data + b"!"
    assert names(path.parent) == ["Zustand größer.json"]


def test_others_cannot_read_unless_the_mode_says_so(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        write(tmp_path / "key", b"secret")
        write(tmp_path / "open", b"public", mode=0o644)
        (tmp_path / "loose").touch(0o666)
        write(tmp_path / "loose", b"secret")
    finally:
        os.umask(old)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names(tmp_path)}
    assert modes == {"key": 0o600, "open": 0o644, "loose": 0o600}


def test_content_is_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(
            "folder"
            if stat.S_ISDIR(os.fstat(handle).st_mode)
            else f"{os.fstat(handle).st_size} bytes"
        )
        sync(handle)

    def renamed(*paths: Any) -> None:
        done.append("rename")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write(tmp_path / "x", b"12345")
    assert done == ["5 bytes", "rename", "folder"]


@pytest.mark.parametrize("step", ["fsync", "replace", "open"])
def test_a_failure_at_any_step_leaves_the_old_file_and_no_scraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "x"
    write(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(
        DiskError, match=r"cannot write .*x: No space left on device; free some disk space"
    ):
        write(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("seen", [1, 5, 20])
def test_a_process_that_is_killed_leaves_a_whole_file(tmp_path: Path, seen: int) -> None:
    path = tmp_path / "state"
    whole: set[bytes] = set()
    worker = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    try:
        deadline = time.monotonic() + 30
        while len(whole) < seen and time.monotonic() < deadline:
            if path.exists():
                data = path.read_bytes()
                assert data == data[:9] * 20_000
                whole.add(data[:9])
        worker.send_signal(signal.SIGKILL)
    finally:
        worker.kill()
        worker.wait()
    assert len(whole) == seen
    data = path.read_bytes()
    assert data == data[:9] * 20_000
    write(path, b"after")
    assert path.read_bytes() == b"after"


KNOWN = {
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "quota",
    errno.EROFS: "read-only",
    errno.EACCES: "writable for this user",
    errno.EPERM: "writable for this user",
    errno.EMFILE: "ulimit -n",
    errno.EIO: "mend the disk",
}


@pytest.mark.parametrize("code", KNOWN, ids=errno.errorcode.get)
def test_every_error_says_what_to_do_and_the_short_text_names_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code), str(tmp_path / "secret-place"))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(DiskError) as caught:
        write(tmp_path / "secret-place", b"x")
    assert KNOWN[code] in str(caught.value)
    assert str(caught.value).endswith("`protoevfl deploy resume`")
    assert str(tmp_path) in str(caught.value)
    assert os.strerror(code) in caught.value.short
    assert "secret-place" not in caught.value.short
    assert isinstance(caught.value, UserError)


def test_a_file_in_place_of_the_folder_is_an_error_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"kept")
    with pytest.raises(DiskError, match="cannot write"):
        write(tmp_path / "x" / "y", b"")
    assert (tmp_path / "x").read_bytes() == b"kept"


def test_syncing_a_folder_that_cannot_be_opened_does_nothing(tmp_path: Path) -> None:
    sync_folder(tmp_path / "none")
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(5):
        sync_folder(tmp_path)
    after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    assert after == before


def test_a_folder_that_cannot_be_synced_does_not_undo_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def refuse(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(handle)

    monkeypatch.setattr(os, "fsync", refuse)
    write(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
