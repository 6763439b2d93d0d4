"""What is measured of a trained run: unseen and rare classes, subsets, what joining gains."""

import pytest
import torch

from protoevfl.bench.run import run
from protoevfl.bench.world import RunConfig
from protoevfl.errors import UserError
from tests.bench.test_run import PROTO, QUICK


def test_zero_shot_reports_what_was_never_seen() -> None:
    record = run(
        RunConfig(aligned=60, pool=30, setting="zero_shot", classes=(3,), overrides=QUICK),
        [0],
        device="cpu",
    )[0]
    metrics = record["metrics"]
    assert record["classes"] == [3]
    assert metrics["unseen_recall"] == metrics["per_class_recall"][3]
    assert metrics["harmonic_mean"] is not None


def test_few_shot_reports_the_recall_of_rare_classes() -> None:
    record = run(
        RunConfig(aligned=60, pool=30, setting="few_shot", classes=(3,), overrides=QUICK),
        [0],
        device="cpu",
    )[0]
    assert record["metrics"]["rare_recall"] == record["metrics"]["per_class_recall"][3]


def test_every_subset_of_parties_can_be_asked() -> None:
    record = run(
        RunConfig(aligned=60, pool=30, parties=2, overrides=QUICK), [0], device="cpu", subsets=True
    )[0]
    subsets = record["metrics"]["subsets"]
    assert set(subsets) == {"0", "1", "0+1"}
    assert subsets["0+1"] == record["metrics"]["accuracy"]


def test_every_label_shows_what_joining_gains() -> None:
    config = RunConfig(aligned=60, pool=30, labels="all", overlap=5, overrides=QUICK)
    record = run(config, [0], device="cpu")[0]
    assert (record["labels"], record["overlap"]) == ("all", 5)
    metrics = record["metrics"]
    gap = metrics["accuracy"] - metrics["alone"]["accuracy"]
    assert metrics["gain"]["measure"] == "accuracy"
    assert metrics["gain"]["difference"] == pytest.approx(gap)
    assert metrics["gain"]["low"] <= gap <= metrics["gain"]["high"]
    assert 0 <= metrics["brier"] <= 2
    assert sum(metrics["mean_rates"]) == pytest.approx(1, abs=1e-4)
    assert metrics["balanced_rule"].keys() == {"accuracy", "balanced_accuracy"}


def test_a_run_that_diverged_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN has no rank: it would count as a perfect AUC."""
    from protoevfl.federation.federation import Federation

    monkeypatch.setattr(
        Federation, "predict", lambda *given, **more: [torch.full((539, 10), torch.nan)]
    )
    with pytest.raises(UserError, match="not finite"):
        run(PROTO, [0], device="cpu")
