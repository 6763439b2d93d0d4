"""`protoevfl tune`: passes its options on, tells each trial, writes one whole line or nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from protoevfl.bench import records
from protoevfl.cli import main as cli

tune = pytest.importorskip("protoevfl.bench.tune")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces the training of a trial by a known score."""
    seen: dict[str, Any] = {}

    def trial(config: Any, seeds: Any, device: str, engine: str = "stacked", folds: int = 4) -> Any:
        seen.update(
            dataset=config.dataset, method=config.method, aligned=config.aligned, seeds=tuple(seeds)
        )
        seen["trials"] = seen.get("trials", 0) + 1
        score = 0.9 if seen["trials"] == 2 else 0.5
        return tune.Trial(dict(config.overrides), score, score, score, None, (score,), 0.1)

    monkeypatch.setattr(tune, "trial", trial)
    return seen


def test_a_search(
    asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "search.jsonl"
    given = [
        "tune",
        "--method",
        "vanilla",
        "--budget",
        "3",
        "--seeds",
        "100",
        "--aligned",
        "100",
        "--out",
        str(out),
    ]
    assert cli.main(given) == 0
    assert (asked["method"], asked["dataset"], asked["aligned"], asked["seeds"]) == (
        "vanilla",
        "digits",
        100,
        (100,),
    )
    shown = capsys.readouterr()
    assert shown.err.count("trial ") == 3
    assert "best of 3: trial 2: score 90.0 %" in shown.out
    best = json.loads(shown.out.splitlines()[-1])["digits"]
    assert best == records.read(out)[0]["best"]["overrides"] != {}
    assert cli.main([*given, "--json", "-q"]) == 0
    assert len(json.loads(capsys.readouterr().out)["trials"]) == 3


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    "bad", ["--method nope", "--dataset nope", "--budget 0", "--seeds x", "--device tpu"]
)
def test_bad_input_is_one_line(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "search.jsonl"
    assert cli.main(["tune", *bad.split(), "--out", str(out)]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert not out.exists()
