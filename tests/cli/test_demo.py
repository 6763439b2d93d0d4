"""The demo: what it trains, what it prints, and that its sentence follows the numbers."""

import json
from typing import Any

import pytest

from protoevfl.bench import run
from protoevfl.cli import demo as cli_demo
from protoevfl.cli import main as cli
from protoevfl.settings.presets import build


def record(unseen: float, up: int) -> dict[str, Any]:
    metrics = {"accuracy": 0.8, "seen_accuracy": 0.9, "unseen_recall": unseen}
    return {"metrics": metrics, "bytes": {"up": up, "down": 0}, "rounds": 1, "seconds": 1.0}


def test_the_sentence_follows_the_numbers() -> None:
    good = cli_demo._sentence({"vanilla": record(0.0, 1_000_000), "proto_evfl": record(0.8, 1000)})
    assert "Vanilla VFL finds 0 % of its rows, Proto-EVFL 80 %" in good
    assert "1,000 times fewer bytes" in good
    worse = cli_demo._sentence({"vanilla": record(0.2, 1000), "proto_evfl": record(0.1, 1000)})
    assert "Vanilla VFL finds 20 % and Proto-EVFL 10 %" in worse
    assert "no fewer bytes" in worse
    nothing = cli_demo._sentence({"vanilla": record(0.0, 3000), "proto_evfl": record(0.0, 1000)})
    assert "No method finds" in nothing
    assert "3 times fewer" in nothing


def test_the_demo_trains_three_methods_without_the_unseen_class(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def pretend(config: run.RunConfig, seeds: list[int], **_: Any) -> list[dict[str, Any]]:
        build(config.method, config.preset, config.dataset)  # the preset exists
        asked.append(
            (
                config.method,
                config.dataset,
                config.setting,
                config.classes,
                config.parties,
                tuple(seeds),
            )
        )
        return [
            record(
                0.5 if config.method == "proto_evfl" else 0.0,
                0 if config.method == "local" else 2000,
            )
        ]

    monkeypatch.setattr(run, "run", pretend)
    assert cli.main(["demo", "--seed", "4"]) == 0
    assert asked == [
        (m, "digits", "zero_shot", (3,), 4, (4,)) for m in ("local", "vanilla", "proto_evfl")
    ]
    shown = capsys.readouterr()
    for word in (
        "Local",
        "Vanilla VFL",
        "Proto-EVFL",
        "seen %",
        "unseen %",
        "bytes",
        "rounds",
        "seconds",
        "Proto-EVFL 50 %",
    ):
        assert word in shown.out
    assert "1,797 pictures" in shown.err
    assert cli.main(["demo", "--quiet", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert len(json.loads(shown.out)["records"]) == 3
    assert cli.main(["demo", "--device", "tpu"]) == 2


def test_the_introduction_tells_the_true_sizes() -> None:
    from protoevfl.rows import sources
    from protoevfl.rows.splits import split_dataset

    dataset = sources.load("digits")
    config = run.RunConfig(dataset="digits", setting="zero_shot", classes=(cli_demo.UNSEEN,))
    split = split_dataset(dataset, config.split_spec(), 0)
    told = (
        f"{len(dataset.labels):,} pictures",
        f"{len(split.aligned)} labelled",
        f"has {len(split.pools[0])} more",
    )
    assert all(text in cli_demo.INTRODUCTION for text in told)
