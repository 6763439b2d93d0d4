"""From files to predictions, end to end: the made-up example always, Credit where it is at hand."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pyarrow.csv as pacsv
import pytest

from protoevfl.artifacts import integrity
from protoevfl.artifacts.run_dir import open_run
from protoevfl.errors import UserError
from protoevfl.method import Report
from protoevfl.observer import Observer
from protoevfl.pipeline.check import check
from protoevfl.pipeline.evaluate import evaluate
from protoevfl.pipeline.predict import predict
from protoevfl.pipeline.simulate import align_files, train_files
from tests.pipeline.example import small_example

CREDIT = Path(os.environ.get("PROTOEVFL_DATA", "absent")) / "credit.csv.gz"


def test_the_made_up_example(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=1500)
    report = check(config, with_estimate=False)
    assert not report.errors
    pairs = align_files(config)
    assert {other: len(pair[other].rows) for other, pair in pairs.items()} == report.pairs
    owner = train_files(config)
    assert owner.metrics["test"]["auc"] > 0.8
    run = open_run(config.output)
    new = {p.name: tmp_path / "new" / p.file.name for p in config.parties}
    truth = tmp_path / "new" / "truth.csv"
    everyone, two = (
        evaluate(run, some, truth)["test"]
        for some in (new, {k: new[k] for k in ("bank", "insurer")})
    )
    assert everyone["auc"] > 0.82
    assert two["auc"] > 0.7
    alone = [evaluate(run, {name: file}, truth)["test"]["auc"] for name, file in new.items()]
    assert everyone["auc"] > max(alone) + 0.02  # 0.88 and 0.82
    assert everyone["balanced_accuracy"] > 0.7


def test_nothing_is_written_when_training_is_stopped(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=400)
    before = sorted(p.name for p in tmp_path.iterdir())

    class Stop(Observer):
        def report(self, report: Report, run: int = 0) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_files(config, observer=Stop())
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_disk_that_fills_up_while_a_run_is_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_example(tmp_path, rows=400)
    before = sorted(p.name for p in tmp_path.iterdir())

    def full(path: Path, tensors: object) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(integrity, "write_tensors", full)
    with pytest.raises(UserError, match=r"cannot write .*run: No space left on device"):
        train_files(config)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_an_existing_output_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=400)
    config.output.mkdir()
    (config.output / "thesis.txt").write_text("x")
    for name in ("bank", "insurer", "telco"):
        config.party(name).file.unlink()  # reading would fail
    with pytest.raises(UserError, match="exists"):
        train_files(config)
    with pytest.raises(UserError, match="not a run directory"):
        train_files(config, overwrite=True)


def test_privacy_and_validation_go_through(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=600, validation=0.25)
    config = replace(config, privacy=replace(config.privacy, preset="one_way", clip=4.0))
    owner = train_files(config)
    assert "Learn" not in owner.metrics["bytes"]["by_type"]  # nothing made of labels goes down
    assert owner.privacy.clip == 4.0
    assert 0.4 < owner.metrics["validation"]["accuracy"] <= 1
    assert open_run(config.output).parties["telco"].privacy.clip == 4.0


def test_ids_of_several_columns(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=400)
    for party in config.parties:
        table = _read(party.file)
        ids = [str(int(float(v))) for v in table["customer_id"].to_pylist()]
        table = table.drop_columns(["customer_id"]).append_column("last", [[v[3:] for v in ids]])
        _write(table.append_column("first", [[v[:3] for v in ids]]), party.file)
    parties = tuple(replace(p, id=("first", "last")) for p in config.parties)
    owner = train_files(replace(config, parties=parties))
    assert owner.metrics["rows"] > 10
    found = predict(open_run(config.output), {"insurer": config.party("insurer").file})
    assert found.table().column_names[:2] == ["first", "last"]


def _read(path: Path) -> object:
    import pyarrow.parquet as pq

    return pq.read_table(path) if path.suffix == ".parquet" else pacsv.read_csv(path)


def _write(table: object, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with pa.output_stream(str(path), compression="detect") as sink:
        pacsv.write_csv(table, sink)
