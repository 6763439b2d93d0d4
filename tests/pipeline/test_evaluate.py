"""Measuring a run again: on its own test rows, and on new files."""

from pathlib import Path

import pyarrow.csv as pacsv
import pytest

from protoevfl.artifacts.run_dir import Run
from protoevfl.errors import UserError
from protoevfl.pipeline.evaluate import evaluate, labelled_rows


def test_the_own_test_rows_give_the_figures_of_training(run: Run) -> None:
    found, kept = evaluate(run, {}), run.need_owner().metrics
    assert found["test"] == kept["test"]
    assert found["subsets"] == kept["subsets"]


def test_new_rows_are_told_apart_by_who_has_them(
    run: Run, new: dict[str, Path], tmp_path: Path
) -> None:
    truth = new["bank"].parent / "truth.csv"
    found = evaluate(run, new, truth)
    assert found["rows"] == pacsv.read_csv(truth).num_rows
    assert list(found["subsets"]) == ["bank+insurer+telco"]
    assert found["test"]["auc"] > 0.75
    lines = new["insurer"].read_text().splitlines()
    (tmp_path / "insurer.csv").write_text("\n".join(lines[:51]))
    mixed = evaluate(run, {"bank": new["bank"], "insurer": tmp_path / "insurer.csv"}, truth)
    assert {name: m["rows"] for name, m in mixed["subsets"].items()} == {
        "bank": found["rows"] - 50,
        "bank+insurer": 50,
    }
    assert len(labelled_rows(run, new, truth).labels) == found["rows"]


def test_what_is_missing_is_said(run: Run, new: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="as --labels"):
        evaluate(run, new)
    with pytest.raises(UserError, match="as --labels"):
        evaluate(run, {"telco": new["telco"]})
    with pytest.raises(UserError, match="--labels goes with --input"):
        evaluate(run, {}, new["bank"])
    with pytest.raises(UserError, match="insurer, telco has none"):
        labelled_rows(run, {"bank": new["bank"]}, new["bank"])
