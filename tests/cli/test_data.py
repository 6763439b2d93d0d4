"""`protoevfl data`: the list is true, rendering writes a file that the data set is read from."""

import json
from pathlib import Path

import pytest

from protoevfl.cli import data as cli_data
from protoevfl.cli import main as cli
from protoevfl.rows import sources

CUBE = "OFF\n4 4 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n3 0 1 3\n3 0 2 3\n3 1 2 3\n"


def test_the_list_names_every_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(cli_data.SIZES) == set(sources.NAMES)
    assert cli.main(["data", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in sources.NAMES)
    assert "bundled" in shown


def test_sizes_are_true_where_the_files_are_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "list", "--json"]) == 0
    for row in json.loads(capsys.readouterr().out):
        assert row["here"] == sources.available(row["name"])
        if row["here"]:
            dataset = sources.load(row["name"])
            assert (len(dataset.labels), dataset.classes) == (row["rows"], row["classes"])


def test_rendering(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("train", "test"):
        for name in ("bathtub", "bed"):
            folder = tmp_path / "ModelNet10" / name / part
            folder.mkdir(parents=True)
            (folder / f"{name}_1.off").write_text(CUBE)
    out = tmp_path / "views.npz"
    assert (
        cli.main(["data", "render-modelnet10", str(tmp_path), "--out", str(out), "--workers", "1"])
        == 0
    )
    assert out.is_file()
    assert "PROTOEVFL_DATA" in capsys.readouterr().err


def test_a_folder_without_meshes_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(["data", "render-modelnet10", str(tmp_path), "--out", str(tmp_path / "x.npz")])
        == 2
    )
    assert "holds no meshes" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
