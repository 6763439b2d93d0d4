"""Image columns keep their pixels, whatever list type holds them; wrong sizes are refused with the
row."""

import numpy as np
import pyarrow as pa
import pytest

from protoevfl.errors import UserError
from protoevfl.rows.columns import as_images, looks_numeric

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 12)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.uint8(), 12), pa.list_(pa.uint8()), pa.large_list(pa.uint8())]
)
def test_images(kind: pa.DataType) -> None:
    column = pa.chunked_array(
        [pa.array(PIXELS[:1].tolist(), kind), pa.array(PIXELS[1:].tolist(), kind)]
    )
    images = as_images(column, (3, 2, 2), "p")
    assert images.dtype == np.uint8
    assert np.array_equal(images, PIXELS.reshape(2, 3, 2, 2))
    assert as_images(column, (3, 4), "p").shape == (2, 1, 3, 4)
    assert np.array_equal(as_images(column[1:], (3, 4), "p").ravel(), PIXELS[1])


def test_other_numbers_become_float32() -> None:
    column = pa.array((PIXELS / 2).tolist(), pa.list_(pa.float64(), 12))
    assert as_images(column, (3, 4), "p").dtype == np.float32


def test_refusals() -> None:
    with pytest.raises(UserError, match="row 2 has 1 values, the shape 1 x 1 x 2 needs 2"):
        as_images(pa.array([[1, 2], [3]]), (1, 2), "p")
    with pytest.raises(UserError, match="row 2 is missing"):
        as_images(pa.array([[1, 2], None]), (1, 2), "p")
    with pytest.raises(UserError, match="not finite"):
        as_images(pa.array([[1.0, float("nan")]]), (1, 2), "p")
    with pytest.raises(UserError, match="list of numbers"):
        as_images(pa.array(["x"]), (1, 2), "p")


@pytest.mark.parametrize(
    ("text", "number"), [("1", True), ("-1.5e3", True), (".5", True), ("1a", False), ("", False)]
)
def test_looks_numeric(text: str, number: bool) -> None:
    assert looks_numeric(text) is number
