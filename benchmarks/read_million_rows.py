"""Memory and time of reading a big file in batches: `python benchmarks/read_million_rows.py FOLDER
[rows]`.

Writes FOLDER/big.parquet (one row group) and FOLDER/big.csv, 100 columns, then fits and transforms
each in a fresh process.
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from machine import resident_mb
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.files import count_rows, iter_batches, scan
from protoevfl.rows.survey import FeatureSpec


def write(folder: Path, rows: int) -> None:
    rng, step = np.random.default_rng(0), 50_000
    csv, parts = None, []
    for start in range(0, rows, step):
        n = min(step, rows - start)
        columns = {f"x{i}": rng.normal(size=n).round(4) for i in range(90)}
        columns |= {f"c{i}": rng.choice(["red", "green", "blue"], n) for i in range(10)}
        part = pa.table(columns)
        csv = csv or pacsv.CSVWriter(folder / "big.csv", part.schema)
        csv.write_table(part)
        parts.append(part)
    csv.close()
    with pq.ParquetWriter(folder / "big.parquet", parts[0].schema) as parquet:
        parquet.write_table(pa.concat_tables(parts), row_group_size=rows)


def measure(path: Path) -> None:
    start = time.perf_counter()
    names = scan(path).names
    encoder = TableEncoder.fit(iter_batches(path, names), FeatureSpec(names))
    out = encoder.transform(iter_batches(path, names), rows=count_rows(path))
    print(
        f"{path.name}: {out.shape}, {time.perf_counter() - start:.1f} s, peak {resident_mb():.0f} "
        "MB resident"
    )


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if target.is_dir():
        write(target, int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
        for name in ("big.parquet", "big.csv"):
            subprocess.run([sys.executable, __file__, str(target / name)], check=True)
    else:
        measure(target)
