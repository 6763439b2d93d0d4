"""Fashion-MNIST (four quadrants), ModelNet-10 (twelve views) and scikit-learn's digits (four
quadrants)."""

import math
from pathlib import Path

import numpy as np
import torch

from protoevfl.errors import UserError
from protoevfl.rows import fetch
from protoevfl.rows.dataset import Array, Dataset, held_out, quadrants

FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_FASHION_URLS = (
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
_FASHION_SHA256 = {  # of the unpacked files
    "train-images-idx3": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
FASHION_FILES = tuple(
    fetch.Remote(
        file=f"{name}-ubyte.gz",
        urls=tuple(f"{url}{name}-ubyte.gz" for url in _FASHION_URLS),
        sha256=sha256,
        unpack=fetch.gunzip,
        advice="Install the Debian package dataset-fashion-mnist, or put the four *-ubyte.gz files "
        "of https://github.com/zalandoresearch/fashion-mnist into a folder and set PROTOEVFL_DATA "
        "to it",
    )
    for name, sha256 in _FASHION_SHA256.items()
)


def _idx(path: Path) -> Array:
    """An IDX file of bytes: magic 0 0 8 d, then d big-endian sizes, then the values."""
    try:
        content = fetch.gunzip(path.read_bytes())
    except fetch.UNREADABLE as error:
        raise UserError(f"{path} cannot be read ({error}); fetch it again") from error
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise UserError(f"{path} is not an IDX file of bytes; fetch it again")
    head = 4 + 4 * content[3]
    shape = [int.from_bytes(content[i : i + 4]) for i in range(4, head, 4)]
    if len(content) < head + math.prod(shape):
        raise UserError(f"{path} ends too early; fetch it again")
    if len(content) > head + math.prod(shape):
        raise UserError(f"{path} holds more than its head says; fetch it again")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)


def fashion_mnist(root: str | Path | None) -> Dataset:
    x_train, y_train, x_test, y_test = (
        _idx(fetch.obtain(remote, root)) for remote in FASHION_FILES
    )
    sides = x_train.shape[1:]
    even = len(sides) == 2 and not any(side % 2 for side in sides)
    if not even or (x_train.shape, x_test.shape) != (
        (*y_train.shape, *sides),
        (*y_test.shape, *sides),
    ):
        shapes = ", ".join(str(array.shape) for array in (x_train, y_train, x_test, y_test))
        raise UserError(
            f"the Fashion-MNIST files do not go together (shapes {shapes}); fetch them again"
        )
    labels = np.concatenate([y_train, y_test]).astype(np.int64)
    return Dataset(
        name="fashion_mnist",
        class_names=FASHION_CLASSES,
        features=torch.cat([quadrants(x_train), quadrants(x_test)]),  # (70000, 4, 14, 14)
        labels=torch.from_numpy(labels),
        train=torch.arange(len(y_train)),
        test=torch.arange(len(y_train), len(labels)),
    )


MODELNET_FILE = "modelnet10_12view_32.npz"
MODELNET_ADVICE = (
    "Unpack ModelNet10.zip of https://modelnet.cs.princeton.edu and run `protoevfl data "
    "render-modelnet10 DIR`, or put the file into a folder and set PROTOEVFL_DATA to it"
)


def modelnet10(root: str | Path | None) -> Dataset:
    path = fetch.find(MODELNET_FILE, root)
    if path is None:
        raise fetch.missing(MODELNET_FILE, root, [], MODELNET_ADVICE)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            views, label, split, names = (
                arrays[key] for key in ("views", "label", "split", "class_names")
            )
    # TypeError: a single array, not an archive
    except (KeyError, TypeError, *fetch.UNREADABLE) as error:
        raise UserError(
            f"{path} does not have the expected arrays ({error}); render it again"
        ) from error
    if views.dtype != np.uint8 or views.ndim != 4 or views.shape[1] != 12:
        raise UserError(
            f"{path}: views must be uint8 (objects, 12, S, S), got {views.dtype} {views.shape}"
        )
    if label.shape != (len(views),) or split.shape != label.shape:
        shapes = f"{label.shape} and {split.shape}"
        raise UserError(
            f"{path}: label and split must have {len(views)} entries, not {shapes}; render it again"
        )
    return Dataset(
        name="modelnet10",
        class_names=tuple(str(name) for name in names),
        features=torch.from_numpy(views),  # (4899, 12, 32, 32)
        labels=torch.from_numpy(label.astype(np.int64)),
        train=torch.from_numpy(np.flatnonzero(split == 0)),
        test=torch.from_numpy(np.flatnonzero(split == 1)),
    )


def digits(root: str | Path | None) -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)  # values 0..16 -> 0..255
    labels = bunch.target.astype(np.int64)
    train, test = held_out(labels, 0.3)
    return Dataset(
        "digits", tuple("0123456789"), quadrants(images), torch.from_numpy(labels), train, test
    )
