"""Records: what is in the file is not run again, and nothing but a torn last line can be lost."""

import dataclasses
import gzip
import json
import multiprocessing
import os
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.bench import records
from protoevfl.errors import UserError


@dataclasses.dataclass(frozen=True)
class Cell:
    method: str = "vanilla"
    classes: tuple[int, ...] = ()

    def identity(self) -> dict[str, Any]:
        return {
            "dataset": "digits",
            "method": self.method,
            "classes": list(self.classes),
            "overrides": {},
        }


def record(seed: int, cell: Cell = Cell(), **more: Any) -> dict[str, Any]:  # noqa: B008 -- frozen
    return {**cell.identity(), "seed": seed, **more}


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    assert records.read(path) == []
    for seed in range(3):
        records.append(path, record(seed, seconds=0.5))
    assert records.read(path) == [record(seed, seconds=0.5) for seed in range(3)]
    assert path.read_bytes().count(b"\n") == 3


def test_the_key_holds_every_field_of_a_configuration() -> None:
    from protoevfl.bench.world import RunConfig

    assert {f.name for f in dataclasses.fields(RunConfig)} == set(records.CELL)
    assert set(RunConfig(labels="all", overlap=5).identity()) == set(records.CELL)
    # older records lack them
    assert set(records.CELL) - set(RunConfig().identity()) == {"labels", "overlap"}
    there = json.loads(
        json.dumps({**RunConfig(classes=(3,), setting="zero_shot").identity(), "seed": 1})
    )
    assert records.missing([RunConfig(classes=(3,), setting="zero_shot")], [1], [there]) == []
    for change in (
        {"aligned": 100},
        {"overrides": {"epochs": 3}},
        {"parties": 2},
        {"pool": 100},
        {"shots": 2},
    ):
        other = RunConfig(**{"classes": (3,), "setting": "zero_shot", **change})  # type: ignore[arg-type]
        assert records.missing([other], [1], [there]) == [(other, [1])]


def test_records_from_before_a_field_was_added_still_count() -> None:
    new = record(0, open=False, side="")
    assert records.key(record(0)) == records.key(new) != records.key(record(0, open=True))
    assert records.key(new) != records.key(record(0, side="example"))


def test_missing_names_only_what_is_not_there() -> None:
    a, b = Cell("vanilla"), Cell("local")
    done = [record(0, a), record(2, a), record(0, b), record(1, b), record(2, b)]
    assert records.missing([a, b], [0, 1, 2, 3], done) == [(a, [1, 3]), (b, [3])]
    assert records.missing([b], [0, 1], done) == []


def test_the_last_record_of_a_seed_counts() -> None:
    done = [
        record(1, seconds=1),
        record(0, seconds=2),
        record(1, seconds=3),
        record(0, Cell("local")),
    ]
    assert [r["seconds"] for r in records.of_cell(done, Cell())] == [2, 3]
    assert [r["seconds"] for r in records.of_cell(done, Cell(), [1])] == [3]


@given(cut=st.integers(1, 200))
def test_a_torn_last_line_is_passed_over_and_removed_by_the_next_append(cut: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.jsonl"
        for seed in range(2):
            records.append(path, record(seed))
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) - cut] if cut < len(whole) else b"")
        kept = records.read(path)
        assert kept == [record(seed) for seed in range(2)][: len(kept)]
        records.append(path, record(7))
        assert records.read(path) == [*kept, record(7)]


def test_a_last_line_without_line_break_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(record(0)))
    records.append(path, record(1))
    assert records.read(path) == [record(0), record(1)]


def test_a_torn_line_longer_than_one_block_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    records.append(path, record(0))
    with path.open("a") as file:
        file.write('{"long": "' + "x" * 200_000)
    records.append(path, record(1))
    assert records.read(path) == [record(0), record(1)]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f"{json.dumps(record(0))}\nnot json\n{json.dumps(record(1))}\n")
    with pytest.raises(UserError, match=r"line 2 is not a JSON object"):
        records.read(path)


def test_numbers_that_json_cannot_hold_become_null(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    records.append(
        path, record(0, history=({"loss": float("nan")}, {"loss": float("inf")}, {"loss": 1.0}))
    )
    assert [h["loss"] for h in records.read(path)[0]["history"]] == [None, None, 1.0]


def test_compressed_records_are_read_but_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(record(0)).encode() + b"\n"))
    assert records.read(path) == [record(0)]
    with pytest.raises(UserError, match=r"plain \.jsonl"):
        records.check_writable(path)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(UserError, match="cannot read"):
        records.read(path)


def test_a_place_that_cannot_be_written_is_refused_and_nothing_created(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "r.jsonl", tmp_path):
        with pytest.raises(UserError, match="cannot write to"):
            records.check_writable(path)
        with pytest.raises(UserError, match="cannot write to"):
            records.append(path, record(0))
    records.check_writable(tmp_path / "r.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_earlier_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.jsonl"
    records.append(path, record(0))
    before, write = path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda handle, line: write(handle, line[:10]))
    with pytest.raises(UserError, match="disk is full"):
        records.append(path, record(1))
    assert path.read_bytes() == before


def _append_many(path: Path, first: int) -> None:
    for seed in range(first, first + 50):
        records.append(path, record(seed, text="x" * 5000))


def test_two_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(path, 100 * w)) for w in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(r["seed"] for r in records.read(path)) == [*range(50), *range(100, 150)]


def test_mean_and_spread_are_those_of_the_statistics_module() -> None:
    values = [0.5, 0.25, 0.75, 0.9]
    assert records.mean_std(values) == pytest.approx(
        (statistics.mean(values), statistics.stdev(values))
    )
    assert records.mean_std([0.5]) == (0.5, None)


def test_a_record_says_which_commit_and_machine_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    records.stamp.cache_clear()
    monkeypatch.setenv("PROTOEVFL_COMMIT", "abc123")
    assert records.stamp()["commit"] == "abc123"
    assert "cores" in records.stamp()["machine"]
    records.stamp.cache_clear()
