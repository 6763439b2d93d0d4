"""Every data set has the rows, shapes and division that the table in `sources.py` promises."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.rows import fetch, image_sources, sources
from protoevfl.rows.dataset import Dataset

from .real import requires


def check(dataset: Dataset, rows: int, test: int, classes: int) -> None:
    assert (len(dataset.labels), len(dataset.test), dataset.classes) == (rows, test, classes)
    assert dataset.labels.dtype == torch.int64
    assert sorted(torch.cat([dataset.train, dataset.test]).tolist()) == list(range(rows))


def test_digits_come_with_the_package() -> None:
    digits = sources.load("digits")
    check(digits, 1797, 539, 10)
    assert isinstance(digits.features, torch.Tensor)
    assert digits.features.shape == (1797, 4, 4, 4)
    assert digits.features.dtype == torch.uint8
    assert int(digits.features.max()) == 255


def test_the_table_of_digits_holds_the_same_rows_with_a_column_per_pixel() -> None:
    table, pictures = sources.load("digits_table"), sources.load("digits")
    check(table, 1797, 539, 10)
    assert torch.equal(table.labels, pictures.labels)
    assert torch.equal(table.test, pictures.test)
    assert table.views == 64
    line = torch.tensor([table.features.column(c)[0].as_py() for c in range(8)])  # of 16
    assert torch.allclose(line * 255 / 16, pictures.features[0, :2, 0].flatten().float(), atol=0.5)


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="fashion_mnist, modelnet10, adult, credit, digits"):
        sources.load("mnist")


@requires("fashion_mnist")
def test_fashion_mnist() -> None:
    fashion = sources.load("fashion_mnist")
    check(fashion, 70_000, 10_000, 10)
    assert isinstance(fashion.features, torch.Tensor)
    assert fashion.features.shape == (70_000, 4, 14, 14)
    assert fashion.labels[fashion.train].bincount().tolist() == [6000] * 10
    assert fashion.train.max() < fashion.test.min()


@requires("fashion_mnist")
def test_fashion_mnist_files_have_the_stated_content() -> None:
    """The sha256 that a download must have is that of the installed files."""
    import hashlib

    for remote in image_sources.FASHION_FILES:
        path = fetch.find(remote.file)
        assert path is not None
        assert hashlib.sha256(fetch.gunzip(path.read_bytes())).hexdigest() == remote.sha256


@requires("modelnet10")
def test_modelnet10() -> None:
    modelnet = sources.load("modelnet10")
    check(modelnet, 4899, 908, 10)
    assert isinstance(modelnet.features, torch.Tensor)
    assert modelnet.features.shape == (4899, 12, 32, 32)
    assert modelnet.class_names[:2] == ("bathtub", "bed")
    assert modelnet.labels[modelnet.train].bincount().tolist()[:3] == [106, 515, 889]


@requires("adult")
def test_adult() -> None:
    adult = sources.load("adult")
    check(adult, 48_842, 16_281, 2)
    assert adult.labels[adult.train].bincount().tolist() == [24_720, 7_841]
    assert adult.views == 14
    assert adult.features["occupation"].null_count == 2809


@requires("credit")
def test_credit() -> None:
    credit = sources.load("credit")
    check(credit, 30_000, 6_000, 2)
    assert credit.labels.bincount().tolist() == [23_364, 6_636]
    assert credit.views == 23


def test_damaged_files_are_named(tmp_path: Path) -> None:
    short = tmp_path / "short.gz"
    short.write_bytes(gzip.compress(b"\0\0\x08\x01" + (5).to_bytes(4, "big") + b"123"))
    with pytest.raises(UserError, match=r"short\.gz ends too early"):
        image_sources._idx(short)
    np.savez(tmp_path / image_sources.MODELNET_FILE, views=np.zeros(3))
    with pytest.raises(UserError, match="expected arrays"):
        sources.load("modelnet10", root=tmp_path)
    (tmp_path / "adult.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(UserError, match="must have the columns"):
        sources.load("adult", root=tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"text", gzip.compress(b"x" * 99)[:-9]], ids=["empty", "text", "cut gzip"]
)
def test_unreadable_files_are_named(tmp_path: Path, content: bytes) -> None:
    for name, file in (
        ("fashion_mnist", "train-images-idx3-ubyte.gz"),
        ("modelnet10", image_sources.MODELNET_FILE),
        ("adult", "adult.csv.gz"),
        ("credit", "credit.csv.gz"),
    ):
        (tmp_path / file).write_bytes(content)
        with pytest.raises(UserError, match=file):
            sources.load(name, root=tmp_path)


def test_absent_modelnet_says_how_to_render_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "DEBIAN", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match="render-modelnet10"):
        sources.load("modelnet10", root=tmp_path)
    assert not sources.available("modelnet10", root=tmp_path)
