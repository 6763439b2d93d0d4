"""`protoevfl bench`: one line a run, nothing run twice, nothing finished lost, bad input refused
before anything."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from protoevfl.bench import records, run
from protoevfl.cli import bench as cli_bench
from protoevfl.cli import main as cli
from protoevfl.errors import UserError
from tests.bench.fields import KEYS, METRICS

SMALL = ["--methods", "local", "--set", "epochs=2", "--set", "models=1", "--device", "cpu"]
FIELDS = KEYS | {"phases", "engine", "commit"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """The (method, seeds) of every call of run.run."""
    calls: list[tuple[str, tuple[int, ...]]] = []
    real = run.run

    def counting(config: run.RunConfig, seeds: list[int], **more: Any) -> list[dict[str, Any]]:
        calls.append((config.method, tuple(seeds)))
        return real(config, seeds, **more)

    monkeypatch.setattr(run, "run", counting)
    return calls


def test_a_line_a_run_with_every_field(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [
        "bench",
        *SMALL,
        "--setting",
        "zero_shot",
        "--classes",
        "3",
        "--seeds",
        "0-1",
        "--out",
        str(out),
    ]
    assert cli.main(given) == 0
    found = records.read(out)
    assert [r["seed"] for r in found] == [0, 1]
    assert all(set(r) >= FIELDS and set(r["metrics"]) >= METRICS for r in found)
    assert found[0]["overrides"] == {"epochs": 2, "models": 1}
    assert 0 <= found[0]["metrics"]["accuracy"] <= 1
    shown = capsys.readouterr()
    assert "local" in shown.out
    assert "±" in shown.out
    for text in ("engine stacked on cpu", "split learning", "180 aligned rows", "Gamma", "sha256"):
        assert text in shown.err


def test_a_run_of_an_instant_still_names_its_longest_phase(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run.time, "perf_counter", lambda: 0.0)  # a machine that takes no time
    assert cli.main(["bench", *SMALL, "--seeds", "0", "--out", str(out)]) == 0
    shown = capsys.readouterr().err
    assert "split learning 0.0 s" in shown
    assert ", ," not in shown


def test_what_is_there_is_not_run_again(
    out: Path, counted: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["bench", *SMALL, "--out", str(out)]
    assert cli.main([*given, "--seeds", "0,2"]) == 0
    before = out.read_bytes()
    assert cli.main([*given, "--seeds", "0-2"]) == 0
    assert counted == [("local", (0,)), ("local", (2,)), ("local", (1,))]
    assert out.read_bytes().startswith(before)
    capsys.readouterr()
    assert cli.main([*given, "--seeds", "0-2", "--json", "--quiet"]) == 0
    assert len(counted) == 3
    shown = capsys.readouterr()
    assert shown.err == ""
    summary = json.loads(shown.out)
    assert summary["methods"]["local"]["seeds"] == [0, 1, 2]
    assert summary["engine"] == "stacked"


def test_the_same_seed_gives_the_same_numbers(out: Path, tmp_path: Path) -> None:
    other = tmp_path / "again.jsonl"
    for path in (out, other):
        assert cli.main(["bench", *SMALL, "--seeds", "3", "-q", "--out", str(path)]) == 0
    (a,), (b,) = records.read(out), records.read(other)
    assert (a["metrics"], a["bytes"], a["split_hash"]) == (
        b["metrics"],
        b["bytes"],
        b["split_hash"],
    )


def test_seeds_in_lockstep_and_subsets(out: Path, counted: list[Any]) -> None:
    given = [
        "bench",
        *SMALL,
        "--methods",
        "vanilla",
        "--seeds",
        "0-2",
        "--lockstep",
        "2",
        "--parties",
        "2",
    ]
    assert cli.main([*given, "--subsets", "--out", str(out)]) == 0
    assert [seeds for _, seeds in counted] == [(0, 1), (2,)]
    assert all(set(r["metrics"]["subsets"]) == {"0", "1", "0+1"} for r in records.read(out))


BAD = {
    "--dataset nope": "unknown data set 'nope'",
    "--methods local,nope": "unknown method 'nope'",
    "--preset nope": "no preset 'nope'",
    "--set nope=1": "no setting 'nope'",
    "--set epochs=abc": "must be a whole number",
    "--setting nope": "unknown setting",
    "--setting zero_shot": "needs the classes",
    "--setting zero_shot --classes 10": "class 10 does not exist; digits has classes 0..9",
    "--classes 3": "setting is normal",
    "--setting few_shot --classes 3 --shots 500": "ask for fewer rows",
    "--aligned 5000": "aligned rows fit",
    "--aligned 3": "aligned rows fit",
    "--pool 100000": "rows fit, not 100,000",
    "--parties 9": "2 to 8 parties",
    "--parties 1": "2 to 8 parties",
    "--profile nope": "unknown imbalance profile",
    "--seeds x": "--seeds takes numbers",
    "--device tpu": "--device is one of",
    "--engine nope": "--engine is one of",
    "--lockstep 0": "--lockstep is at least 1",
    "--methods ,": "--methods needs",
    "--labels most": "labels is one of shared, all",
    "--labels all --methods fedhssl": "fedhssl cannot use labels of rows that are not shared",
    "--overlap 5": "of use with --labels all",
    "--labels all --overlap 5": "local cannot use rows shared with single parties",
    "--labels all --overlap 5000 --methods laser": "an overlap of 5000 rows",
    "--open": "local cannot say 'none of these classes'",
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_one_line_exit_code_2_and_writes_nothing(
    bad: str, out: Path, counted: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *SMALL, "--out", str(out), *bad.split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert BAD[bad] in shown.err
    assert shown.err.count("\n") == 1
    assert counted == []
    assert list(out.parent.iterdir()) == []


def test_a_records_file_that_is_none_is_left_alone(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out.write_text("my notes\nmore notes\n")
    assert cli.main(["bench", *SMALL, "--out", str(out)]) == 2
    assert "is this a records file?" in capsys.readouterr().err
    assert out.read_text() == "my notes\nmore notes\n"


def test_a_run_that_fails_takes_no_other_with_it(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = run.run

    def failing(config: run.RunConfig, seeds: list[int], **more: Any) -> list[dict[str, Any]]:
        if seeds == [1]:
            raise UserError("the extractor collapsed")
        return real(config, seeds, **more)

    monkeypatch.setattr(run, "run", failing)
    assert cli.main(["bench", *SMALL, "--seeds", "0-2", "--out", str(out)]) == 2
    assert [r["seed"] for r in records.read(out)] == [0, 2]
    assert "1 run(s) failed" in capsys.readouterr().err


def test_ctrl_c_keeps_what_is_finished_and_says_so(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = run.run

    def stopped(config: run.RunConfig, seeds: list[int], **more: Any) -> list[dict[str, Any]]:
        if seeds == [2]:
            raise KeyboardInterrupt
        return real(config, seeds, **more)

    monkeypatch.setattr(run, "run", stopped)
    assert cli.main(["bench", *SMALL, "--seeds", "0-4", "--out", str(out)]) == 130
    assert [r["seed"] for r in records.read(out)] == [0, 1]
    assert "2 of 5 runs were added" in capsys.readouterr().err


def heeding_interrupts() -> None:
    """For a child: under nohup and in background jobs SIGINT is ignored, and it inherits that, as
    it should."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_true_interrupt_of_a_true_process(out: Path) -> None:
    given = ["bench", *SMALL, "--set", "epochs=30", "--seeds", "0-50", "--out", str(out)]
    program = [sys.executable, "-m", "protoevfl", *given]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        program, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=heeding_interrupts
    )
    try:
        deadline = time.monotonic() + 120
        while not records.read(out) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "the same command goes on from there" in told
    assert "Traceback" not in told
    lines = out.read_bytes()
    assert lines.endswith(b"\n")
    assert 1 <= len(records.read(out)) < 51


def test_the_line_about_a_run_tells_its_phases() -> None:
    record = {
        "method": "vanilla",
        "seed": 1,
        "metrics": {"accuracy": 0.5},
        "bytes": {"up": 10, "down": 0},
        "rounds": 2,
        "phases": {"warm-up": 3.21, "end": 0.001},
        "lockstep_seeds": 4,
        "peak_memory_mb": 100.4,
    }
    told = cli_bench._run_line(record)
    assert "warm-up 3.2 s" in told
    assert "end" not in told
    assert "for 4 seeds at once" in told


def test_old_lines_without_subsets_are_mentioned(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["bench", *SMALL, "--seeds", "0", "--out", str(out)]
    assert cli.main(given) == 0
    assert cli.main([*given, "--subsets"]) == 0
    assert "1 of them have no subsets" in capsys.readouterr().err


TWO = ["bench", "--device", "cpu", "--setting", "zero_shot", "--classes", "2,7", "--seeds", "0"]


def test_side_information_on_two_unseen_classes(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = out.with_name("attributes.csv")
    table.write_text("class,size,parity\n" + "".join(f"{z},{z},{z % 2}\n" for z in range(10)))
    quick = {
        "warm.epochs": 1,
        "rounds.count": 0,
        "head.epochs": 2,
        "head.members": 1,
        "unseen.components": 4,
    }
    small = [
        *TWO,
        "--parties",
        "2",
        "--aligned",
        "60",
        "--pool",
        "60",
        "--out",
        str(out),
        *(f"--set={name}={value}" for name, value in quick.items()),
    ]
    for side in ("example", str(table), str(table)):
        assert cli.main([*small, "--side", side]) == 0
        shown = capsys.readouterr()
        assert "matched %" in shown.out
        assert f"side information: {Path(side).name}" in shown.out
    found = records.read(out)
    # the same table a second time is not run again
    assert [r["side"] for r in found] == ["example", str(table)]
    for record in found:
        assert record["metrics"]["matched_unseen"] >= record["metrics"]["unseen_recall"]


def test_side_information_reaches_the_owner(tmp_path: Path) -> None:
    table = tmp_path / "attributes.csv"
    table.write_text("".join(f"{z},{z * z}\n" for z in range(10)))
    cell = {"aligned": 60, "pool": 30, "setting": "zero_shot", "classes": (7, 2)}
    world = run.prepare(run.RunConfig(**cell, side="example"), 0, "cpu")  # type: ignore[arg-type]
    for z, row in world.owner.examples.items():
        assert int(world.labels.query[row]) == z
        assert z not in world.labels.query[:row]
    assert set(world.owner.examples) == {2, 7}
    assert world.owner.attributes is None
    other = run.prepare(run.RunConfig(**cell, side=str(table)), 0, "cpu").owner  # type: ignore[arg-type]
    assert other.attributes is not None
    assert other.attributes[:, 0].tolist() == [z * z for z in range(10)]
    assert not other.examples


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("".join(f"{z},1\n" for z in range(9)), [], "no line for class 9"),
        ("0,1\n1,large\n", [], "line 2: 'large' is not a number"),
        ("0,1\n10,1\n", [], "line 2: '10' is not a class"),
        (None, [], "cannot read"),
        ("0,1\n", ["--open"], "give one of the two"),
    ],
)
def test_bad_side_information_is_refused_before_anything_runs(
    out: Path, text: str | None, more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = out.with_name("attributes.csv")
    if text is not None:
        table.write_text(text)
    assert cli.main([*TWO, "--side", str(table), "--out", str(out), *more]) == 2
    shown = capsys.readouterr().err.strip()
    assert message in shown
    assert "\n" not in shown
    assert not out.exists()
