"""The sealed level between companies: each side in its own border, a party lost in the middle; the
predictions are those of one process, and nothing crosses but what the specification names."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("gmpy2")
pytest.importorskip("private_set_intersection")

from protoevfl.artifacts.run_dir import open_run
from protoevfl.deploy import policy
from protoevfl.deploy.envelope import Envelope
from protoevfl.deploy.job_file import complete
from protoevfl.deploy.lead import LostError
from protoevfl.deploy.secret import run_seed
from protoevfl.deploy.spec import JobSpec
from protoevfl.methods import own_trees
from protoevfl.methods.sealed import UNIT
from protoevfl.pipeline.predict import predict, write_predictions
from protoevfl.pipeline.simulate import train_files
from tests.deploy.test_site_job import Companies, job, status
from tests.faults.companies import NAMES, one_process, probabilities, write_files

__all__ = ["job"]  # a fixture
# no label and no score is replaced by a draw, no sum is noisy: the two runs draw from different secrets
WIDE = {"sealed.most_of_number": 1.0}
EXACT = {"privacy.sum_noise": 0.0}
SPEC = complete(
    JobSpec(
        "train",
        NAMES,
        preset="sealed",
        settings=WIDE,
        rounds=20,
        privacy={"label_epsilon": 500.0, "sum_noise": 0.0},
    )
)


@pytest.fixture(autouse=True)
def _few_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_trees, "BOOSTING", ({"max_iter": 5, "min_samples_leaf": 5},))


def companies(folder: Path, spec: JobSpec = SPEC) -> Companies:
    """Files of three companies and kits that take sealed jobs only."""
    write_files(folder)
    found = Companies(folder, spec)
    for name in NAMES:
        rules = policy.TEMPLATE.format(active="bank")
        strict = rules.replace('presets = ["default", "sealed"]', 'presets = ["sealed"]')
        assert strict != rules
        wide = '"sealed.most_of_number" = [0, 1]\n'  # two columns only: each is half of the score
        (found.kit(name).folder / "policy.toml").write_text(strict + wide)
    return found


def test_predictions_are_those_of_one_process_and_a_lost_party_costs_nothing(
    tmp_path: Path,
) -> None:
    losses = []

    def lose(name: str, envelope: Envelope) -> None:
        if name == "shop" and envelope.kind == "request" and envelope.round == 2 and not losses:
            losses.append(name)
            raise LostError("the line is cut")

    first = companies(tmp_path, replace(SPEC, deadline_s=0.01, wait_s=0.0))
    first.meet = lose
    assert "shop did not answer" in first.lead()
    first.hosts = {}  # every party starts again from its disk
    assert first.lead() == "done", status(first.kit("bank"), "train")
    kinds = {kind for _, sort, kind in first.sent if sort == "request"}
    assert kinds == {"SealedLabels", "OpenedSums", "Embed"}
    config = one_process(tmp_path)
    seed = run_seed(tmp_path / "bank", "train")
    config = replace(
        config,
        seed=seed,
        method=replace(config.method, preset="sealed", overrides=WIDE | EXACT),
        privacy=replace(config.privacy, label_epsilon=500.0),
    )
    train_files(config)
    deployed = probabilities(first.kit("bank").run_folder("train") / "predictions.csv")
    asked = {name: tmp_path / name / "rows.csv" for name in NAMES}
    write_predictions(predict(open_run(config.output), asked, "cpu"), tmp_path / "one.csv")
    alone = probabilities(tmp_path / "one.csv")
    assert deployed
    for person, (p, parties) in deployed.items():
        assert alone[person][1] == parties
        assert abs(alone[person][0] - p) < 1e-6


def test_own_labels_are_taken_off_noisy_scores_between_companies_too(tmp_path: Path) -> None:
    """Only the owner's guard knows which labels were summed."""
    spec = complete(replace(SPEC, privacy={"label_epsilon": 500.0, "sum_noise": 1.0}))
    run = companies(tmp_path, spec)
    assert run.lead() == "done", status(run.kit("bank"), "train")
    kept = open_run(run.kit("bank").run_folder("train")).need_owner().memory
    assert bool((kept[UNIT][1:] != 1).all())
    assert not any(name.startswith("guard.") for name in kept), "the labels stay in the run"


def test_the_ledger_enters_scores_and_the_review_says_what_happens_to_columns(
    tmp_path: Path,
) -> None:
    run = companies(tmp_path)
    assert "sealed: sums of shared rows under encryption" in SPEC.review()
    assert policy.Policy.read(run.kit("shop").folder / "policy.toml").objections(SPEC) == []


@pytest.mark.parametrize(
    ("settings", "objection"),
    [
        ({"columns": "open"}, "with another level of columns"),
        ({"sealed.levels": 0}, "sealed.levels = 0"),
        ({"sealed.most_of_number": 0.9}, "sealed.most_of_number = 0.9"),
    ],
)
def test_a_job_may_not_loosen_a_party_s_audit(settings: dict[str, object], objection: str) -> None:
    spec = complete(replace(SPEC, settings=settings, down=(), up=()))
    found = policy.Policy(active="bank").objections(spec)
    assert any(objection in text for text in found), json.dumps(found)
