"""Values, own columns and pictures on the page."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from protoevfl.artifacts.run_dir import open_run
from protoevfl.pipeline.value import value
from protoevfl.report import worth
from protoevfl.report.measured import Measured
from protoevfl.report.parts import Pictures, Table, Words, points
from tests.report.made_up import made_up


def test_values_and_columns_are_those_of_the_run(trained: Path) -> None:
    run = open_run(trained)
    owner = run.need_owner()
    parties, columns = worth.sections(Measured(run, owner.test, owner.metrics))
    (shares,) = (part for part in parties.parts if isinstance(part, Table))
    found = {share.party: points(share.value) for share in value(owner, owner.test).shares}
    assert {line[0]: line[2] for line in shares.lines} == found
    (table,) = (part for part in columns.parts if isinstance(part, Table))
    own = set(run.parties["bank"].encoder.columns)
    assert {line[0] for line in table.lines} == own  # and none of another party


def test_a_party_that_was_away_is_not_valued() -> None:
    measured = made_up()
    del measured.rows.embeddings[1]
    parts = list(worth._parties(measured))
    assert len(parts) == 1
    assert isinstance(parts[0], Words)
    assert "insurer sent nothing" in parts[0].text


def test_without_own_rows_it_says_what_is_missing() -> None:
    (part,) = worth._own_columns(made_up(), worth.SILENT)
    assert isinstance(part, Words)
    assert "train again" in part.text


def test_pictures_are_shown_with_their_class_and_mistakes_first() -> None:
    pixels = torch.randint(256, (300, 1, 8, 8), dtype=torch.uint8)
    measured = made_up(("cat", "dog"), own=pixels)
    (shown,) = (p for p in worth._own_columns(measured, worth.SILENT) if isinstance(p, Pictures))
    assert len(shown.shown) == 6
    first = shown.shown[0][1]
    assert first.startswith("✗ is")


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 200, 200), (2, 5, 5)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_picture_of_any_kind_is_a_small_png(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    pixels = (torch.rand(shape) * (255 if dtype == torch.uint8 else 1)).to(dtype)
    kind, _, data = worth.address(pixels).partition(",")
    assert kind == "data:image/png;base64"
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert max(image.size) <= 2 * worth.SIDE
    assert np.asarray(image).std() > 0
