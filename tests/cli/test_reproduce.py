from pathlib import Path

import pytest

from protoevfl.bench import records
from protoevfl.bench.world import RunConfig
from protoevfl.cli.main import main
from protoevfl.reproduction.catalogue import EXPERIMENTS
from tests.reproduction import fake


def test_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "list"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()] == list(EXPERIMENTS)
    assert "label_inference" in said


def test_imbalance_runs_and_renders(tmp_path: Path) -> None:
    command = ["reproduce", "imbalance", "--quick", "--out", str(tmp_path), "--device", "cpu"]
    assert main(command) == 0
    assert len(records.read(tmp_path / "records.jsonl")) == 2
    names = {p.name for p in tmp_path.rglob("*")}
    assert names >= {
        "results.md",
        "imbalance.csv",
        "imbalance-pools.svg",
        "imbalance-pools.png",
        "report.html",
    }
    assert main([*command, "--no-render"]) == 0
    assert len(records.read(tmp_path / "records.jsonl")) == 2


def test_merge_and_no_run(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    records.append(other, fake.record(RunConfig(), 3))
    assert (
        main(
            [
                "reproduce",
                "selection",
                "--no-run",
                "--no-render",
                "--merge",
                str(other),
                "--out",
                str(tmp_path),
            ]
        )
        == 0
    )
    assert len(records.read(tmp_path / "records.jsonl")) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "there is no experiment 'nothing'"),
        (["selection", "--seeds", "a"], "takes numbers and ranges such as 0-4"),
        (["selection", "--shard", "3/2"], "give k/n"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments, "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_report_writes_a_page_beside_the_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.append(tmp_path / "records.jsonl", fake.record(RunConfig(), 0))
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    assert main(["report", str(tmp_path / "nothing")]) == 2
