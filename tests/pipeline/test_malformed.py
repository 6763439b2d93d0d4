"""Files as they come: one clear line and nothing written, or they simply work within memory."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protoevfl.errors import UserError
from protoevfl.pipeline.check import check
from protoevfl.pipeline.simulate import train_files
from protoevfl.settings.config import Config
from tests.pipeline.example import small_example


def wrong_encoding(path: Path) -> None:
    path.write_bytes(path.read_text().replace("city", "cité").encode("latin-1"))


def ragged(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:7], lines[7] + ",1,2", *lines[8:]]))


def mixed_types(path: Path) -> None:
    lines = path.read_text().splitlines()
    cells = lines[5].split(",")
    path.write_text(
        "\n".join([*lines[:5], ",".join([cells[0], "about 300", *cells[2:]]), *lines[6:]])
    )


def nan_ids(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], "NaN" + lines[3][lines[3].index(",") :], *lines[4:]]))


def no_overlap(path: Path) -> None:
    path.write_text(path.read_text().replace("\n1", "\n9"))


def no_features(path: Path) -> None:
    path.write_text("\n".join(line.split(",")[0] for line in path.read_text().splitlines()))


def unclosed_quote(path: Path) -> None:
    path.write_text(path.read_text().replace('"region"', '"region'))


def no_rows(path: Path) -> None:
    path.write_text(path.read_text().splitlines()[0] + "\n")


def not_a_table(path: Path) -> None:
    path.write_bytes(os.urandom(2000))


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "wrong encoding": (wrong_encoding, "not UTF-8"),
    "ragged": (ragged, "line 8 has 7 values"),
    "mixed types": (mixed_types, "mixes numbers and text"),
    "NaN ids": (nan_ids, "1 rows have no id"),
    "no overlap": (no_overlap, "only 0 rows in common"),
    "no features": (no_features, "no feature columns left"),
    "unclosed quote": (unclosed_quote, "insurer.csv"),
    "no rows": (no_rows, "no rows"),
    "not a table": (not_a_table, "insurer"),
}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return small_example(tmp_path, rows=400)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_one_clear_line_and_nothing_is_written(config: Config, kind: str) -> None:
    break_it, message = BROKEN[kind]
    break_it(config.party("insurer").file)
    before = sorted(p.name for p in config.path.parent.iterdir())
    with pytest.raises(UserError) as error:
        train_files(config)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert sorted(p.name for p in config.path.parent.iterdir()) == before
    assert any(message in text for text in check(config, with_estimate=False).errors)


def test_damaged_compression_is_one_clear_line(config: Config) -> None:
    path = config.party("telco").file
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(UserError, match="telco"):
        train_files(config)


def test_labels_on_some_rows_work(config: Config) -> None:
    path = config.party("bank").file
    table = pq.read_table(path)
    labels = [v if i % 3 else None for i, v in enumerate(table["default"].to_pylist())]
    place = table.schema.get_field_index("default")
    pq.write_table(table.set_column(place, "default", pa.array(labels, pa.string())), path)
    owner = train_files(config)
    assert any("used as unlabelled rows" in note for note in owner.metrics["notes"])


def test_ten_thousand_columns_work(config: Config) -> None:
    ids = pq.read_table(config.party("bank").file)["customer_id"]
    rng = np.random.default_rng(0)
    columns = {f"c{i}": rng.normal(size=len(ids)).astype(np.float32) for i in range(10_000)}
    wide = config.path.parent / "wide.parquet"
    pq.write_table(pa.table({"customer_id": ids, **columns}), wide)
    parties = tuple(replace(p, file=wide) if p.name == "telco" else p for p in config.parties)
    owner = train_files(replace(config, parties=parties))
    assert owner.metrics["rows"] > 10


PROGRAM = """
import resource, sys
from dataclasses import replace
from pathlib import Path
from protoevfl.settings.config import load
from protoevfl.artifacts.run_dir import open_run
from protoevfl.pipeline.simulate import train_files
config = load(Path(sys.argv[1]))
method = replace(config.method, overrides={"warm.epochs": 1, "head.epochs": 1})
config = replace(config, method=method, pool=2000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
train_files(config)
assert open_run(config.output).parties["insurer"].facts["rows"] == 1_000_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_a_file_of_a_million_rows_works_within_memory(config: Config) -> None:
    rng = np.random.default_rng(0)
    n = 1_000_000
    known = pq.read_table(config.party("bank").file)["customer_id"].to_numpy()
    ids = np.concatenate([known, 10_000_000 + np.arange(n - len(known))])
    table = {
        "customer_id": ids,
        "premium": rng.normal(size=n).round(3),
        "claims": rng.poisson(1.0, n),
        "region": rng.choice(["city", "country"], n),
        "bonus": rng.integers(0, 9, n),
    }
    import pyarrow.csv as pacsv

    with gzip.open(config.path.parent / "insurer.csv.gz", "wb", compresslevel=1) as sink:
        pacsv.write_csv(pa.table(table), sink)
    text = config.path.read_text().replace('"insurer.csv"', '"insurer.csv.gz"')
    config.path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(config.path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) < 1000  # MB on top of what the imports take; the ids alone are 200
