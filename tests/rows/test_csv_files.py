"""CSV: the types that a survey finds hold for every row and are those of reading at once; what is
wrong is said."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from protoevfl.errors import UserError
from protoevfl.rows import csv_files


def file(folder: Path, content: str | bytes, name: str = "bank.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def streamed(path: Path, columns: list[str], text: tuple[str, ...] = ()) -> Any:
    types, rows = csv_files.survey(path, columns, text)
    table = pa.Table.from_batches(list(csv_files.stream(path, columns, types)))
    assert table.num_rows == rows
    return table


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_READ", pacsv.ReadOptions(block_size=64))


EARLY = {
    "nothing": "",
    "whole": "1",
    "number": "1.5",
    "truth": "false",
    "day": "2019-01-01",
    "time": "01:02:03",
    "moment": "2019-01-01 00:00:00",
    "zone": "2019-01-01T00:00:00Z",
}
LATE = {
    "whole": "7",
    "huge": "99999999999999999999",
    "number": "2.5",
    "truth": "true",
    "day": "2020-01-02",
    "time": "12:30:00",
    "moment": "2020-01-02 03:04:05",
    "instant": "2020-01-02 03:04:05.123",
    "zone": "2020-01-02T03:04:05Z",
    "text": "x",
}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("early", EARLY)
def test_a_value_far_down_gives_the_type_that_reading_at_once_gives(
    tmp_path: Path, early: str
) -> None:
    for late, value in LATE.items():
        path = file(tmp_path, "a,b\n" + f"{EARLY[early]},zzz\n" * 30 + f"{value},zzz\n")
        found, whole = streamed(path, ["a"]), csv_files.read(path, ["a"], ())
        assert found.schema == whole.schema, late
        assert found["a"].to_pylist() == whole["a"].to_pylist()


@pytest.mark.usefixtures("small_blocks")
def test_the_column_that_is_widened_is_the_one_that_failed(tmp_path: Path) -> None:
    path = file(tmp_path, "a,b,c\n" + "1,1,1\n" * 40 + "2,x,2.5\n")
    types, rows = csv_files.survey(path, ["c", "b"], ())
    assert {name: str(kind) for name, kind in types.items()} == {"c": "double", "b": "string"}
    assert rows == 41
    assert streamed(path, ["c", "b"]).column_names == ["c", "b"]


@pytest.mark.usefixtures("small_blocks")
def test_a_line_break_within_quotes_does_not_end_the_row(tmp_path: Path) -> None:
    long = "first line\nsecond line " + "x" * 30
    path = file(tmp_path, "a,b\n" + f'"{long}",1\n' * 20)
    assert streamed(path, ["a"])["a"].to_pylist() == [long] * 20


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "value", ["utf-8", "UTF8", "codec", "straddling", "Empty CSV", "Expected 2 columns, got 3"]
)
def test_a_value_that_reads_like_an_error_is_a_value(tmp_path: Path, value: str) -> None:
    path = file(tmp_path, "a,b\n" + "1,2\n" * 40 + f'"{value}",3\n')
    assert streamed(path, ["a", "b"])["a"].to_pylist() == ["1"] * 40 + [value]


def test_text_columns_are_never_guessed(tmp_path: Path) -> None:
    path = file(tmp_path, "id,x\n007,1\n2020-01-01,2\ntrue,3\n")
    for table in (csv_files.read(path, ["id"], ("id",)), streamed(path, ["id"], ("id",))):
        assert table["id"].to_pylist() == ["007", "2020-01-01", "true"]


def test_spellings_of_a_missing_value(tmp_path: Path) -> None:
    path = file(tmp_path, "a,b\n1,x\n?,?\n,\nNA,NA\nnan,NULL\n")
    for table in (csv_files.read(path, ["a", "b"], ()), streamed(path, ["a", "b"])):
        assert table["a"].to_pylist() == [1, None, None, None, None]
        assert table["b"].to_pylist() == ["x", None, None, None, None]


def test_names_and_values_beyond_ascii(tmp_path: Path) -> None:
    path = file(tmp_path, "größe;名前\n1;山田\n2;Zoë 🙂\n")
    assert csv_files.header(path).names == ["größe", "名前"]
    assert streamed(path, ["名前"])["名前"].to_pylist() == ["山田", "Zoë 🙂"]


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        ("a,b", ","),
        ("a;b,c;d", ";"),
        ("a\tb", "\t"),
        ("a|b", "|"),
        ('"x;y;z",b', ","),
        ("only", ","),
    ],
)
def test_the_delimiter_is_the_commonest_mark_outside_quotes(
    tmp_path: Path, line: str, mark: str
) -> None:
    assert csv_files.delimiter(file(tmp_path, line + "\n1;2;3;4\n")) == mark


@pytest.mark.parametrize("name", ["BANK.CSV.GZ", "bank.csv.gz"])
def test_a_suffix_in_capitals_is_unpacked_too(tmp_path: Path, name: str) -> None:
    path = file(tmp_path, gzip.compress(b"a,b\n1,2\n"), name)
    assert csv_files.read(path, ["b"], ())["b"].to_pylist() == [2]
    assert streamed(path, ["a"])["a"].to_pylist() == [1]


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\xef\xbb\xbf"], ids=["nothing", "blank lines", "only a mark"]
)
@pytest.mark.parametrize("name", ["e.csv", "e.csv.gz"])
def test_a_file_without_a_header_is_empty(tmp_path: Path, content: bytes, name: str) -> None:
    path = file(tmp_path, gzip.compress(content) if name.endswith("gz") else content, name)
    with pytest.raises(UserError, match=r"e\.csv.* is empty; it needs a header line and rows"):
        csv_files.header(path)


def test_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    path = file(tmp_path, "a,b\n")
    assert csv_files.survey(path, ["a", "b"], ())[1] == 0
    assert csv_files.read(path, ["a"], ()).num_rows == 0


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_an_open_quote_is_found_and_a_doubled_one_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(csv_files, "BLOCK", block)
    csv_files._check_quotes(file(tmp_path, 'a,b\n"say ""yes""",2\n'))
    with pytest.raises(UserError, match="never closed; quotes within a value are written twice"):
        csv_files._check_quotes(file(tmp_path, 'a,b\n"say ""yes,2\n1,3\n'))


@pytest.mark.usefixtures("small_blocks")
def test_a_row_longer_than_a_block_says_so(tmp_path: Path) -> None:
    path = file(tmp_path, "a,b\n1,2\n" + "x" * 500 + ",3\n")
    with pytest.raises(UserError, match="a row is longer than 8 MB; is a quote not closed"):
        streamed(path, ["a", "b"])


def test_a_file_that_changed_after_the_survey_is_one_clear_line(tmp_path: Path) -> None:
    path = file(tmp_path, "a\n1\n")
    types, _ = csv_files.survey(path, ["a"], ())
    file(tmp_path, "a\nx\n")
    with pytest.raises(UserError, match=r"bank\.csv.*column 1.*did the file change"):
        list(csv_files.stream(path, ["a"], types))


def test_a_missing_file_and_a_missing_column_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no\.csv cannot be read"):
        csv_files.header(tmp_path / "no.csv")
    with pytest.raises(UserError, match=r"bank\.csv: .*'z'"):
        csv_files.read(file(tmp_path, "a\n1\n"), ["z"], ())


def test_the_name_that_occurs_twice_is_given() -> None:
    csv_files.check_unique(Path("bank.csv"), ["a", "A", "b"])
    with pytest.raises(
        UserError, match=r"bank\.csv: the column name 'b' occurs more than once; rename one"
    ):
        csv_files.check_unique(Path("bank.csv"), ["a", "b", "b", "a"])


def test_an_open_quote_is_named_rather_than_the_line_it_swallowed(tmp_path: Path) -> None:
    path = file(tmp_path, 'a,b,c\n1,"x,2\n3,y,4\n')
    with pytest.raises(UserError, match=r"a quote .* is opened and never closed"):
        csv_files.header(path)
