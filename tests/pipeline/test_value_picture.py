"""The picture of the values."""

from pathlib import Path

import pytest

from protoevfl.artifacts.run_dir import Run
from protoevfl.errors import UserError
from protoevfl.pipeline.value import value
from protoevfl.pipeline.value_picture import draw


def test_png_and_svg_are_written_with_every_party(run: Run, tmp_path: Path) -> None:
    worth = value(run.need_owner(), run.need_owner().test, draws=100)
    draw(worth, tmp_path / "v.png")
    draw(worth, tmp_path / "v.svg")
    assert (tmp_path / "v.png").read_bytes()[:4] == b"\x89PNG"
    text = (tmp_path / "v.svg").read_text()
    assert all(f"<!-- {name} -->" in text for name in ("insurer", "telco"))
    with pytest.raises(UserError, match="written as"):
        draw(worth, tmp_path / "v.docx")
    assert len(list(tmp_path.iterdir())) == 2
