"""Files to tensors: the rows asked for in the order asked for, encoders that come back from JSON,
images."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from protoevfl.errors import ColumnsError, UserError
from protoevfl.rows import files
from protoevfl.rows.encoders import (
    ImageEncoder,
    ImageSpec,
    differences,
    encode_rows,
    encoded_batches,
    encoder_from,
    encoder_state,
    fit_encoder,
    row_shape,
)
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.frames import Frame
from protoevfl.rows.readings import Reading
from protoevfl.rows.survey import FeatureSpec
from protoevfl.settings.config import Config, PartyFile, resolve
from tests.pipeline.example import small_example


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return small_example(tmp_path_factory.mktemp("example"))


@pytest.fixture(scope="module")
def bank(config: Config) -> PartyFile:
    return resolve(config)["bank"]


def test_rows_come_in_the_order_asked_for_whatever_the_batches(
    bank: PartyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = files.count_rows(bank.info.path)
    encoder = fit_encoder(bank.info.path, bank.spec, None, np.ones(total, np.bool_))
    whole = torch.cat(list(encoded_batches(encoder, bank.info.path)))
    rows = np.array([7, 3, total - 1, 0])
    assert torch.equal(encode_rows(encoder, bank.info.path, rows, total), whole[rows])
    monkeypatch.setattr(files, "_CELLS", 50)  # batches of a few rows
    assert torch.equal(encode_rows(encoder, bank.info.path, rows, total), whole[rows])
    with pytest.raises(UserError, match="did the file change"):
        encode_rows(encoder, bank.info.path, rows[:2], total - 5)


def test_the_encoder_does_not_see_rows_kept_aside(bank: PartyFile) -> None:
    total = files.count_rows(bank.info.path)
    keep = np.arange(total) < total // 2
    half, all_ = (
        fit_encoder(bank.info.path, bank.spec, None, keep),
        fit_encoder(bank.info.path, bank.spec, None, np.ones(total, np.bool_)),
    )
    assert encoder_state(half) != encoder_state(all_)
    first = torch.cat(list(encoded_batches(half, bank.info.path)))[: total // 2]
    assert abs(float(first[:, 0].mean())) < 1e-5  # standardised on exactly these rows


def test_encoders_come_back_from_json(bank: PartyFile) -> None:
    encoder = fit_encoder(
        bank.info.path, bank.spec, None, np.ones(files.count_rows(bank.info.path), np.bool_)
    )
    again = encoder_from(json.loads(json.dumps(encoder_state(encoder))))
    same = zip(
        encoded_batches(encoder, bank.info.path),
        encoded_batches(again, bank.info.path),
        strict=True,
    )
    assert all(torch.equal(a, b) for a, b in same)
    assert row_shape(again) == row_shape(encoder)
    with pytest.raises(UserError, match="version"):
        encoder_from({"kind": "images", "version": 99})


def images(tmp_path: Path, dtype: str, bank: PartyFile) -> tuple[PartyFile, np.ndarray]:
    x = (np.arange(5 * 6).reshape(5, 6) * 8).astype(dtype)
    kind = pa.list_(pa.uint8() if dtype == "uint8" else pa.float32(), 6)
    pq.write_table(pa.table({"pixels": pa.array(list(x), kind)}), tmp_path / "x.parquet")
    party = replace(bank.config, image=ImageSpec("pixels", (2, 3)), file=tmp_path / "x.parquet")
    return replace(bank, config=party, info=files.scan(tmp_path / "x.parquet")), x


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_are_padded_to_squares_and_numbers_moved_to_0_1(
    tmp_path: Path, dtype: str, bank: PartyFile
) -> None:
    file, x = images(tmp_path, dtype, bank)
    encoder = fit_encoder(
        file.info.path, file.spec, file.config.image, np.array([True, True, True, True, False])
    )
    assert isinstance(encoder, ImageEncoder)
    out = encode_rows(encoder, file.info.path, np.array([4, 0]), 5)
    assert out.shape == (2, 1, 3, 3)
    assert not out[:, :, 2].any()  # the padded line
    if dtype == "uint8":
        assert out.dtype == torch.uint8
        assert torch.equal(out[0, 0, :2], torch.from_numpy(x[4].reshape(2, 3)))
    else:
        assert float(out.max()) == 1.0  # row 4 lies above the range of the training rows
        assert torch.allclose(
            out[1, 0, :2], torch.from_numpy(x[0].reshape(2, 3)) / float(x[:4].max())
        )
    assert encoder_state(encoder_from(encoder_state(encoder))) == encoder_state(encoder)


def written(path: Path, mark: str, columns: dict[str, list[str]]) -> Path:
    lines = [
        mark.join(columns),
        *(mark.join(cells) for cells in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_new_file_is_read_as_the_training_file_was(tmp_path: Path) -> None:
    old = {"x": ["1,5", "2.000", "30,25", "7"], "d": ["31/01/2020", "01/02/2020"] * 2}
    path = written(tmp_path / "old.csv", ";", old)
    spec = FeatureSpec(("x", "d"))
    encoder = encoder_from(encoder_state(fit_encoder(path, spec, None)))
    assert isinstance(encoder, TableEncoder)
    assert encoder.readings["x"] == Reading("number", "comma")
    # a CSV reader would take 2.000 for 2, and nothing here tells day and month apart
    new = written(tmp_path / "new.csv", ";", {"x": ["2.000", "7"], "d": ["01/02/2020"] * 2})
    before = encode_rows(encoder, path, np.array([1, 3]), 4)
    assert torch.equal(encode_rows(encoder, new, np.array([0, 1]), 2)[:, 0], before[:, 0])
    assert torch.equal(torch.cat(list(encoded_batches(encoder, new)))[:, 1], before[:, 1])
    typed = Frame("new", pa.table({"x": [2000.0, 7.0], "d": [date(2020, 2, 1)] * 2}))
    assert torch.equal(encode_rows(encoder, typed), before)
    other = written(tmp_path / "other.csv", ";", {"x": ["7", "1.5"], "d": ["01/02/2020"] * 2})
    with pytest.raises(UserError, match=r"other.csv: column 'x' holds '1.5' \(row 2\); it is read"):
        encode_rows(encoder, other, np.array([0, 1]), 2)


def test_plain_numbers_do_not_become_decimal_commas_later(tmp_path: Path) -> None:
    path = written(tmp_path / "old.csv", ";", {"x": ["1.5", "2", "30.25"], "y": ["1", "2", "3"]})
    encoder = fit_encoder(path, FeatureSpec(("x",)), None)
    new = written(tmp_path / "new.csv", ";", {"x": ["1,234", "7"], "y": ["1", "2"]})
    with pytest.raises(UserError, match=r"'x' holds '1,234' \(row 1\); it is read as plain"):
        encode_rows(encoder, new, np.array([0, 1]), 2)


def test_every_bad_column_is_in_the_error(tmp_path: Path) -> None:
    path = written(tmp_path / "bank.csv", ";", {"x": ["1.5", "2,5"], "y": ["€ 5", "$ 5"]})
    with pytest.raises(
        ColumnsError, match=r"'x' mixes .*and 1 more columns: `protoevfl check`"
    ) as e:
        fit_encoder(path, FeatureSpec(("x", "y")), None)
    assert len(e.value.lines) == 2


def test_new_rows_are_compared_with_those_of_training(tmp_path: Path) -> None:
    """Read as in training (here with decimal commas), and of the columns in use only."""

    def written(name: str, times: int) -> Path:
        rows = "".join(f"{times * (i % 40 + 1.5)};note {i}\n".replace(".", ",") for i in range(400))
        (tmp_path / name).write_text(f"x;free\n{rows}")
        return tmp_path / name

    encoder = fit_encoder(written("old.csv", 1), FeatureSpec(("x", "free")), None)
    assert isinstance(encoder, TableEncoder)
    assert list(encoder.pictures) == ["x"]
    restored = encoder_from(json.loads(json.dumps(encoder_state(encoder))))
    assert differences(restored, written("same.csv", 1)) == []
    (line,) = differences(restored, written("new.csv", 1000))
    assert line.startswith("column 'x' differs from training")
    assert "about 1000 times" in line
