"""Attributes of classes: in the order of the classes, whatever the order of the file; what is wrong
is said by line."""

from pathlib import Path

import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.rows.attributes import read_attributes

NAMES = ("no", "yes", "perhaps")


@pytest.mark.parametrize("header", ["", "class,loops,strokes\n"])
def test_lines_may_stand_in_any_order(tmp_path: Path, header: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"{header}yes, 1, 2.5\n\nperhaps,0,-1e3\nno,3,4\n", encoding="utf-8-sig")
    assert torch.equal(
        read_attributes(file, NAMES), torch.tensor([[3.0, 4.0], [1.0, 2.5], [0.0, -1000.0]])
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no,1\nyes,2\n", "a.csv has no line for class perhaps"),
        ("", "no line for class no, yes, perhaps"),
        ("no,1\nyes,two\nperhaps,3\n", "line 2: 'two' is not a number"),
        ("no,1\nyes,nan\nperhaps,3\n", "line 2: 'nan' is not a number"),
        ("no,1\nyes,\nperhaps,3\n", "line 2: '' is not a number"),
        ("no,1\nyes,2,5\nperhaps,3\n", "line 2: 2 values"),
        ("no\nyes\nperhaps\n", "line 1: 0 values"),
        ("no,1\nmaybe,2\n", "line 2: 'maybe' is not a class; the classes are no, yes, perhaps"),
        ("maybe,2\nno,1\n", "line 1: 'maybe' is not a class"),
        ("no,1\nno,2\n", "line 2: class 'no' has a line already"),
        ("\x00\ufffd", "no line for class"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as error:
        read_attributes(file, NAMES)
    assert "\n" not in str(error.value)


def test_files_that_are_no_csv(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1\xff\xfe\x80")
    for file, message in (
        ("a.parquet", "not a CSV file in UTF-8"),
        ("b.csv", "cannot read"),
        (".", "cannot read"),
    ):
        with pytest.raises(UserError, match=message):
            read_attributes(tmp_path / file, NAMES)
