"""Checkpoints: whole or absent, never half; a full disk or a crash leaves the earlier rounds."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from protoevfl.deploy import durable
from protoevfl.deploy.checkpoints import Checkpoint, CheckpointStore, DamagedError, blob, unblob
from protoevfl.errors import UserError


def some(number: int, size: int = 10) -> Checkpoint:
    tensors = {
        "a": torch.randn(size),
        "n": torch.tensor(number),
        "none": torch.zeros(0),
        "b": torch.eye(3).T,
    }
    return Checkpoint(number, tensors, {"run": "r", "answered": "x"})


def test_what_is_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    store, kept = CheckpointStore(tmp_path / "c"), some(4)
    store.save(kept)
    found = store.load(4)
    assert found.header == kept.header
    assert all(
        torch.equal(found.tensors[n], t) and found.tensors[n].dtype == t.dtype
        for n, t in kept.tensors.items()
    )
    assert oct(store.path(4).stat().st_mode)[-3:] == "600"


def test_only_the_last_rounds_are_kept(tmp_path: Path) -> None:
    store, journal = (
        CheckpointStore(tmp_path / "c", keep=2),
        CheckpointStore(tmp_path / "j", keep=None),
    )
    for number in range(5):
        store.save(some(number))
        journal.save(some(number))
    assert store.rounds() == [3, 4]
    assert journal.rounds() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("place", [0, 8, 60, -1])
def test_a_flipped_bit_or_a_cut_is_noticed_and_the_round_before_is_used(
    tmp_path: Path, place: int
) -> None:
    store = CheckpointStore(tmp_path)
    store.save(some(1))
    store.save(some(2))
    data = bytearray(store.path(2).read_bytes())
    data[place] ^= 1
    store.path(2).write_bytes(data)
    with pytest.raises(DamagedError):
        store.load(2)
    latest = store.latest()
    assert latest is not None
    assert latest.round == 1
    store.path(2).write_bytes(data[: len(data) // 2])
    with pytest.raises(DamagedError):
        store.load(2)


def test_a_file_under_another_round_number_is_refused(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(some(1))
    shutil.copy(store.path(1), store.path(2))
    with pytest.raises(DamagedError, match="another version or round"):
        store.load(2)


def test_a_failed_rename_leaves_the_old_file_and_no_scraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path)
    store.save(some(1))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UserError, match="No space left on device; free some disk space"):
        store.save(some(2))
    assert store.rounds() == [1]
    assert [p.name for p in tmp_path.iterdir()] == ["round-000001.safetensors"]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MB, where this machine lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_keeps_earlier_rounds_whole(tiny_disk: Path) -> None:
    store = CheckpointStore(tiny_disk / "c", keep=None)

    def fill() -> None:
        for number in range(100):
            store.save(some(number, size=20_000))

    with pytest.raises(UserError, match="No space left"):
        fill()
    assert len(store.rounds()) >= 5
    for number in store.rounds():
        store.load(number)
    assert not list((tiny_disk / "c").glob(".*"))


def test_a_read_only_disk_is_one_clear_line(tiny_disk: Path) -> None:
    store = CheckpointStore(tiny_disk)
    store.save(some(1))
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    with pytest.raises(UserError, match="read-only"):
        store.save(some(2))
    store.load(1)


def test_blobs_round_trip() -> None:
    for data in (b"", b"\0", os.urandom(1000)):
        assert unblob(blob(data)) == data


def test_a_folder_in_place_of_the_file_is_an_error_line(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "y").touch()
    with pytest.raises(UserError, match="cannot write"):
        durable.write(tmp_path / "x", b"")
