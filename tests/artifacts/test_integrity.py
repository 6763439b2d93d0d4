"""Folders check themselves; a directory appears whole or not at all."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from protoevfl.artifacts import integrity
from protoevfl.errors import UserError


def make(folder: Path) -> Path:
    folder.mkdir()
    integrity.write_tensors(folder / "a.safetensors", {"x": torch.arange(6.0).view(2, 3).T})
    integrity.seal(folder, "facts.json", "kind", {"n": 3})
    return folder


def test_sealed_facts_and_tensors_come_back(tmp_path: Path) -> None:
    folder = make(tmp_path / "f")
    assert integrity.unseal(folder, "facts.json", "kind")["n"] == 3
    assert torch.equal(
        integrity.read_tensors(folder / "a.safetensors")["x"], torch.arange(6.0).view(2, 3).T
    )


def test_a_changed_byte_a_lost_file_and_another_version_are_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "f")
    data = (folder / "a.safetensors").read_bytes()
    (folder / "a.safetensors").write_bytes(data[:-1] + b"\x01")
    with pytest.raises(UserError, match="checksum"):
        integrity.unseal(folder, "facts.json", "kind")
    (folder / "a.safetensors").unlink()
    with pytest.raises(UserError, match="lacks a"):
        integrity.unseal(folder, "facts.json", "kind")
    facts = json.loads((folder / "facts.json").read_text())
    (folder / "facts.json").write_text(json.dumps({**facts, "version": 99}))
    with pytest.raises(UserError, match="version 99"):
        integrity.unseal(folder, "facts.json", "kind")
    (folder / "facts.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        integrity.unseal(folder, "facts.json", "kind")
    with pytest.raises(UserError, match="holds no other"):
        integrity.unseal(folder, "other.json", "kind")


def test_files_outside_the_folder_are_not_looked_at(tmp_path: Path) -> None:
    folder = make(tmp_path / "f")
    facts = json.loads((folder / "facts.json").read_text())
    facts["files"]["../secret"] = "0"
    (folder / "facts.json").write_text(json.dumps(facts))
    (tmp_path / "secret").write_text("x")
    with pytest.raises(UserError, match="lacks"):
        integrity.unseal(folder, "facts.json", "kind")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_block_leaves_nothing_and_keeps_the_old(
    tmp_path: Path, error: type[BaseException]
) -> None:
    out = tmp_path / "run"
    with integrity.whole(out) as part:
        (part / "old").write_text("1")

    def stopped(place: Any, name: str) -> None:
        with place as part:
            (part / name if name else part).write_text("half")
            raise error

    with pytest.raises(error):
        stopped(integrity.whole(out), "new")
    with pytest.raises(error):
        stopped(integrity.whole_file(tmp_path / "file.csv"), "")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert [p.name for p in out.iterdir()] == ["old"]


def test_a_full_disk_is_one_line_and_nothing_stays(tmp_path: Path) -> None:
    def full(place: Any) -> None:
        with place as part:
            (part / "half" if part.is_dir() else part).write_text("half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for place in (integrity.whole(tmp_path / "run"), integrity.whole_file(tmp_path / "file.csv")):
        with pytest.raises(UserError, match=r"cannot write .*: No space left on device"):
            full(place)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_takes_no_files_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="file is not a folder"):
        integrity.check_free(tmp_path / "file" / "run", False)
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(integrity.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(UserError, match=r"1.0 MB are free there; make room"):
        integrity.check_free(tmp_path / "deep" / "run", False)
    monkeypatch.setattr(integrity.os, "access", lambda folder, mode: False)
    with pytest.raises(UserError, match="no permission"):
        integrity.check_free(tmp_path / "run", False)


def test_replacing_takes_the_place_of_the_whole_directory(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    for name in ("a", "b"):
        with integrity.whole(out) as part:
            (part / name).write_text(name)
    assert [p.name for p in out.iterdir()] == ["b"]
    assert [p.name for p in out.parent.iterdir()] == ["run"]


def test_an_existing_output_is_refused_and_a_strange_one_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match="--overwrite"):
        integrity.check_free(tmp_path / "photos", False, "run.json")
    with pytest.raises(UserError, match="not a run directory"):
        integrity.check_free(tmp_path / "photos", True, "run.json")
    integrity.check_free(tmp_path / "new", False, "run.json")
