"""Image sources: what the files hold comes out view by view; a file that is cut or does not match
is named."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.rows import image_sources
from protoevfl.rows.dataset import Array
from protoevfl.rows.image_sources import (
    FASHION_FILES,
    MODELNET_FILE,
    digits,
    fashion_mnist,
    modelnet10,
)

pytestmark = pytest.mark.usefixtures("nothing_elsewhere")


def idx(array: Array) -> bytes:
    sizes = b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return b"\0\0\x08" + bytes([array.ndim]) + sizes + bytes(array.astype(np.uint8).tobytes())


def fashion(folder: Path, **instead: bytes) -> Path:
    """Three train and two test images of counted pixels; `instead` replaces the content of one of
    the four files."""
    for i, (remote, rows) in enumerate(zip(FASHION_FILES, (3, 3, 2, 2), strict=True)):
        pixels = np.arange(rows * 16).reshape(rows, 4, 4) + 100 * (i // 2)
        content = idx(pixels if i % 2 == 0 else np.arange(rows))
        (folder / remote.file).write_bytes(gzip.compress(instead.get(f"file{i}", content)))
    return folder


def test_train_rows_come_first_and_quadrants_keep_their_pixels(tmp_path: Path) -> None:
    found = fashion_mnist(fashion(tmp_path))
    assert isinstance(found.features, torch.Tensor)
    assert found.features.shape == (5, 4, 2, 2)
    assert found.features[0].tolist() == [
        [[0, 1], [4, 5]],
        [[2, 3], [6, 7]],
        [[8, 9], [12, 13]],
        [[10, 11], [14, 15]],
    ]
    assert int(found.features[3, 0, 0, 0]) == 100
    assert found.labels.tolist() == [0, 1, 2, 0, 1]
    assert (found.train.tolist(), found.test.tolist()) == ([0, 1, 2], [3, 4])
    assert len(set(found.class_names)) == 10


@pytest.mark.parametrize("end", range(0, 20))
def test_a_content_cut_anywhere_is_named(tmp_path: Path, end: int) -> None:
    fashion(tmp_path, file0=idx(np.zeros((3, 4, 4)))[:end])
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz .*; fetch it again"):
        fashion_mnist(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"\0\0\x0d\x01" + bytes(8),
        b"\0\0\x08\x02" + b"\xff" * 8 + b"1",
        idx(np.zeros((3, 4, 4))) + b"more",
    ],
    ids=["other type", "absurd sizes", "too long"],
)
def test_a_content_that_is_not_what_its_head_says_is_named(tmp_path: Path, content: bytes) -> None:
    fashion(tmp_path, file2=content)
    with pytest.raises(UserError, match=r"t10k-images-idx3-ubyte\.gz .*; fetch it again"):
        fashion_mnist(tmp_path)


@pytest.mark.parametrize(
    "instead",
    [{"file1": idx(np.zeros(4))}, {"file0": idx(np.zeros((3, 5, 5)))}, {"file0": idx(np.zeros(3))},
     {"file2": idx(np.zeros((2, 6, 6)))}, {"file3": idx(np.zeros((2, 1)))}],
    ids=["a label too many", "odd side", "images without sides", "test of another size", "labels in a table"],
)  # fmt: skip
def test_files_that_do_not_go_together_are_refused(
    tmp_path: Path, instead: dict[str, bytes]
) -> None:
    with pytest.raises(
        UserError, match=r"Fashion-MNIST files do not go together.*fetch them again"
    ):
        fashion_mnist(fashion(tmp_path, **instead))


def test_a_label_beyond_the_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"labels must lie in 0\.\.9"):
        fashion_mnist(fashion(tmp_path, file1=idx(np.array([0, 1, 10]))))


def test_absent_files_say_where_to_put_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train-images.*not found.*set PROTOEVFL_DATA"):
        fashion_mnist(tmp_path)


def views(folder: Path, **changed: Any) -> Path:
    arrays = {
        "views": np.arange(5 * 12 * 4, dtype=np.uint8).reshape(5, 12, 2, 2),
        "label": np.array([0, 1, 1, 0, 1], np.uint8),
        "split": np.array([0, 1, 0, 0, 1], np.uint8),
        "class_names": np.array(["bed", "Stühle"]),
    }
    np.savez(folder / MODELNET_FILE, **(arrays | changed))
    return folder


def test_rendered_views_are_divided_as_the_file_says(tmp_path: Path) -> None:
    found = modelnet10(views(tmp_path))
    assert (found.train.tolist(), found.test.tolist()) == ([0, 2, 3], [1, 4])
    assert found.labels.tolist() == [0, 1, 1, 0, 1]
    assert found.class_names == ("bed", "Stühle")
    assert found.views == 12


@pytest.mark.parametrize(
    "changed",
    [{"views": np.zeros((5, 11, 2, 2), np.uint8)}, {"views": np.zeros((5, 12, 2, 2))}, {"label": np.int64(0)},
     {"label": np.zeros(4)}, {"split": np.zeros(3)}, {"views": np.array([{}])}],
    ids=["eleven views", "floats", "one label", "a label too few", "a split too short", "objects"],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=MODELNET_FILE):
        modelnet10(views(tmp_path, **changed))


def test_a_single_array_in_place_of_the_archive_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / MODELNET_FILE, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(UserError, match=r"expected arrays.*render it again"):
        modelnet10(tmp_path)


def test_digits_are_the_same_every_time_and_every_class_is_held_out() -> None:
    one, other = digits(None), digits(None)
    assert isinstance(one.features, torch.Tensor)
    assert isinstance(other.features, torch.Tensor)
    assert torch.equal(one.features, other.features)
    assert torch.equal(one.test, other.test)
    assert not set(one.train.tolist()) & set(one.test.tolist())
    share = one.labels[one.test].bincount() / one.labels.bincount()
    assert ((share - 0.3).abs() < 0.01).all()


def test_downloads_are_checked_by_distinct_hashes() -> None:
    assert len({remote.sha256 for remote in FASHION_FILES}) == 4
    assert all(len(remote.sha256) == 64 and len(remote.urls) >= 1 for remote in FASHION_FILES)
    assert len(image_sources.FASHION_CLASSES) == 10
