"""Files come out the same whatever they are written in, in bounded memory; bad ones give one line
that helps."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from protoevfl.errors import UserError
from protoevfl.rows import csv_files, files
from protoevfl.rows.files import count_rows, iter_batches, read_columns, scan

TABLE = pa.table(
    {"id": ["01", "2", "3"], "x": [1.5, None, 3.0], "n": [1, 2, 3], "c": ["a", "b,c", 'q"\n"z']}
)


def write(folder: Path, name: str) -> Path:
    path = folder / name
    if name.endswith(".parquet"):
        pq.write_table(TABLE, path)
        return path
    with pa.output_stream(str(path), compression="detect") as sink:
        pacsv.write_csv(TABLE, sink)
    return path


@pytest.mark.parametrize("name", ["f.parquet", "f.csv", "f.csv.gz", "f.csv.zst"])
def test_same_content_in_every_format(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name)
    table = read_columns(path, ["c", "id", "x"], text=["id"])
    assert table.column_names == ["c", "id", "x"]
    assert table.to_pydict() == TABLE.select(["c", "id", "x"]).to_pydict()
    batches = pa.Table.from_batches(
        list(iter_batches(path, ["c", "id", "x"], text=["id"], batch_rows=2))
    )
    assert batches.to_pydict() == table.to_pydict()
    assert count_rows(path) == 3
    assert scan(path).names == ("id", "x", "n", "c")


def test_semicolons_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes('\ufeffid;"a,b,c,d"\n1;2\n'.encode())
    assert scan(path).names == ("id", "a,b,c,d")


def test_ids_keep_leading_zeros_only_as_text(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("id\n00123\n")
    assert read_columns(path, ["id"], text=["id"])["id"].to_pylist() == ["00123"]
    assert read_columns(path, ["id"])["id"].to_pylist() == [123]


def test_types_hold_beyond_the_first_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_READ", pacsv.ReadOptions(block_size=64))
    path = tmp_path / "f.csv"
    path.write_text("a,b,c,d\n" + "1,1,,1\n" * 50 + "2.5,x,7,2\n" + "3,3,,3\n" * 50)
    table = pa.Table.from_batches(list(iter_batches(path, ["a", "b", "c", "d"])))
    assert [str(t) for t in table.schema.types] == ["double", "string", "int64", "int64"]
    assert table.to_pydict() == read_columns(path, ["a", "b", "c", "d"]).to_pydict()


BAD = {
    "empty.csv": (b"", "is empty"),
    "header.csv": (b"a,b\n", "no rows"),
    "ragged.csv": (b"a,b\n1,2\n1,2,3\n", "line 3 has 3 values, the header 2"),
    "short.csv": (b'a,b\n"x\ny",2\n1\n', "line 4 has 1 values, the header 2"),
    "latin.csv": ("a,b\n1,x\n1,Müller\n".encode("latin-1"), "not UTF-8 .*line 3.*save it as UTF-8"),
    "latin_header.csv": ("ä,b\n1,2\n".encode("latin-1"), "not UTF-8"),
    "utf16.csv": ("a,b\n1,x\n".encode("utf-16"), "UTF-16"),
    "twice.csv": (b"a,a\n1,2\n", "'a' occurs more than once"),
    "quote.csv": (b'a,b\n1,"x\n2,3\n', "never closed"),
    "fake.csv.gz": (b"a,b\n1,2\n", "cannot be decompressed"),
    "cut.csv.gz": (gzip.compress(bytes(range(48, 58)) * 9999)[:50], "cannot be decompressed"),
    "fake.csv.zst": (b"a,b\n1,2\n", "cannot be decompressed"),
    "fake.parquet": (b"a,b\n1,2\n", "not a Parquet file"),
    "empty.parquet": (b"", "is empty"),
    "f.xlsx": (b"x", "unknown kind of file"),
    "f.parquet.gz": (b"x", "unknown kind of file"),
    "nosuffix": (b"x", "unknown kind of file"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_give_one_clear_line(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    for read in (
        lambda p: read_columns(p, ["a", "b"]),
        lambda p: list(iter_batches(p, ["a", "b"])),
    ):
        with pytest.raises(UserError, match=message) as caught:
            read(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_bad_bytes_far_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_READ", pacsv.ReadOptions(block_size=64))
    path = tmp_path / "f.csv"
    path.write_bytes(b"a,b\n" + b"x,y\n" * 100 + b"x,\xff\n")
    for read in (
        lambda p: read_columns(p, ["a", "b"]),
        lambda p: list(iter_batches(p, ["a", "b"])),
    ):
        with pytest.raises(UserError, match=r"not UTF-8 .*line 102"):
            read(path)


def test_missing_things_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "bank.csv")
    with pytest.raises(
        UserError, match=r"no column 'idd' \(did you mean 'id'\?\); its columns are id, x, n, c"
    ):
        read_columns(path, ["idd"])
    with pytest.raises(UserError, match=r"did you mean 'bank.csv'"):
        scan(tmp_path / "bnak.csv")
    with pytest.raises(UserError, match="no folder"):
        scan(tmp_path / "no" / "bank.csv")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_ten_thousand_columns(tmp_path: Path, suffix: str) -> None:
    names = [f"column_{i}" for i in range(10_000)]
    wide = pa.table(dict(zip(names, np.arange(30_000).reshape(10_000, 3).tolist())))
    path = tmp_path / f"wide.{suffix}"
    pq.write_table(wide, path) if suffix == "parquet" else pacsv.write_csv(wide, path)
    assert len(scan(path).names) == 10_000
    assert read_columns(path, names).num_columns == 10_000
    assert sum(b.num_rows for b in iter_batches(path, names)) == 3
    with pytest.raises(UserError, match=r"10000 in all"):
        read_columns(path, ["nope"])


def test_a_parquet_file_that_claims_more_rows_than_can_be_aligned_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_ROWS", 999)
    pq.write_table(pa.table({"a": [0] * 1000}), tmp_path / "f.parquet")
    with pytest.raises(UserError, match=r"f\.parquet says it has 1,000 rows, more than the 999"):
        scan(tmp_path / "f.parquet")
    pq.write_table(pa.table({"a": [0] * 999}), tmp_path / "f.parquet")
    assert scan(tmp_path / "f.parquet").rows == 999


def test_a_folder_in_the_place_of_a_file_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "bank.csv").mkdir()
    with pytest.raises(UserError, match=r"bank\.csv is a folder; name the file in it"):
        files.scan(tmp_path / "bank.csv")
