"""What crossed, in words: each sentence belongs to a setting, and nothing is promised that is not
proven."""

from dataclasses import replace
from pathlib import Path

import pytest

from protoevfl.artifacts.run_dir import Run, open_run
from protoevfl.privacy import words
from protoevfl.report import crossed
from protoevfl.report.parts import Table, Words

FLOWS = {
    "Embeddings": {"up": 900, "down": 0},
    "Learn": {"up": 0, "down": 100},
}


def changed(run: Run, by_type: dict[str, dict[str, int]], **more: object) -> Run:
    """The run with other messages in its metrics."""
    owner = run.need_owner()
    traffic = {
        "by_type": by_type,
        "by_party": {},
        "up": sum(sizes["up"] for sizes in by_type.values()),
        "down": sum(sizes["down"] for sizes in by_type.values()),
    }
    return replace(run, owner=replace(owner, metrics={**owner.metrics, "bytes": traffic, **more}))


def test_bytes_are_those_of_the_run(trained: Path) -> None:
    run = open_run(trained)
    tables = [part for part in crossed.crossed(run).parts if isinstance(part, Table)]
    traffic = run.need_owner().metrics["bytes"]
    together = tables[1].lines[-1]
    assert together == ("together", f"{traffic['up']:,}", f"{traffic['down']:,}")
    assert {line[0] for line in tables[0].lines} == set(traffic["by_type"])


def test_encoded_columns_are_said_to_be_readable(trained: Path) -> None:
    said = [
        part.text for part in crossed.crossed(open_run(trained)).parts if isinstance(part, Words)
    ]
    assert words.FEATURES in said
    assert any("one process" in text for text in said)


def test_gradients_are_said_to_give_labels_away(trained: Path) -> None:
    run = changed(open_run(trained), {"BackwardBatch": {"up": 0, "down": 10}})
    assert "read the labels" in crossed._labels(run)


def test_noise_is_told_as_odds_and_nothing_is_promised_without(trained: Path) -> None:
    run = open_run(trained)
    proven = crossed._labels(changed(run, FLOWS, epsilon={"1": 0.5, "2": 0.63}))
    assert "insurer 0.50 and telco 0.63" in proven
    assert "1.9 times" in proven
    assert "nothing is proven" in crossed._labels(changed(run, FLOWS))


@pytest.mark.parametrize("level", ["few", "sealed"])
def test_the_level_of_columns_is_told(trained: Path, level: str) -> None:
    run = open_run(trained)
    owner = run.need_owner()
    method = replace(owner.method, columns=level)  # type: ignore[type-var]
    text = crossed._columns(replace(run, owner=replace(owner, method=method)))
    assert f'columns = "{level}"' in text


def test_of_sealed_labels_the_bound_of_randomised_response_is_told(trained: Path) -> None:
    for message in ("OpenLabels", "SealedLabels"):
        text = crossed._labels(changed(open_run(trained), {message: {"up": 0, "down": 9}}))
        assert "epsilon 3." in text
        assert "20.1 times" in text
