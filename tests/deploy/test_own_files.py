"""Three companies with files that overlap in part, as real processes: the result is that of one
process.

One of them is killed in the middle; the files to learn from are gone when new rows are predicted.
"""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("nvflare")
pytest.importorskip("private_set_intersection")

from protoevfl.artifacts.run_dir import open_run
from protoevfl.audit.own_run import of_run
from protoevfl.cli.audit import _secret_seed
from protoevfl.cli.main import main
from protoevfl.deploy.audit_log import verify
from protoevfl.deploy.checkpoints import CheckpointStore
from protoevfl.deploy.job_file import complete
from protoevfl.deploy.relay import Line
from protoevfl.deploy.secret import run_seed
from protoevfl.deploy.self_audit import FILE
from protoevfl.deploy.spec import JobSpec
from protoevfl.deploy.standing_active import StandingActive, serve_spec
from protoevfl.errors import UserError
from protoevfl.pipeline.predict import predict, write_predictions
from protoevfl.pipeline.simulate import train_files
from protoevfl.serve.service import Row, open_model
from tests.faults.companies import NAMES, one_process, probabilities, write_files
from tests.faults.federation import Federation, kill

pytestmark = pytest.mark.xdist_group("companies")


@dataclass
class Twice:
    """The same training between companies and in one process."""

    federation: Federation
    alone: Path  # folder of the run in one process
    said: list[str]

    @property
    def deployed(self) -> Path:
        return self.federation.kit("bank").run_folder("credit")

    @property
    def new(self) -> dict[str, Path]:
        return {name: self.federation.folder / name / "new.csv" for name in NAMES}


@pytest.fixture(scope="module")
def twice(federation: Federation) -> Twice:
    federation.up()  # an earlier test may have stopped a party
    write_files(federation.folder)
    said: list[str] = []
    spec = complete(JobSpec("credit", NAMES, rounds=20, deadline_s=60.0, wait_s=120.0))
    running = federation.submit(spec, said.append)
    federation.wait_for_round("credit", 1)
    kill(*federation.workers("shop"))
    # the bank's split and models start from its secret; the others' draws do not enter here
    seed = run_seed(federation.folder / "bank", "credit")
    config = replace(one_process(federation.folder), seed=seed)
    train_files(config)
    assert running.done()["state"] == "done"
    for name in NAMES:
        (federation.folder / name / "rows.csv").rename(federation.folder / name / "moved.csv")
    later = replace(spec, run="later", task="predict", base="credit", rounds=1, down=(), up=())
    assert federation.submit(complete(later), said.append).done()["state"] == "done"
    return Twice(federation, config.output, said)


def difference(one: Path, other: Path) -> float:
    """The largest difference of probabilities of the rows of `one`; every row is predicted by the
    same parties."""
    found, wanted = probabilities(one), probabilities(other)
    assert found
    assert {i: parties for i, (_, parties) in found.items()} == {i: wanted[i][1] for i in found}
    return max(abs(p - wanted[i][0]) for i, (p, _) in found.items())


def test_new_rows_are_predicted_as_in_one_process_without_the_training_files(
    twice: Twice, tmp_path: Path
) -> None:
    write_predictions(predict(open_run(twice.alone), twice.new), tmp_path / "alone.csv")
    later = twice.federation.kit("bank").run_folder("later") / "predictions.csv"
    assert difference(later, tmp_path / "alone.csv") < 1e-5
    assert len({parties for _, parties in probabilities(later).values()}) > 2


def test_rows_without_a_label_are_predicted_as_in_one_process(twice: Twice, tmp_path: Path) -> None:
    files = {name: twice.federation.folder / name / "moved.csv" for name in NAMES}
    write_predictions(predict(open_run(twice.alone), files), tmp_path / "alone.csv")
    assert difference(twice.deployed / "predictions.csv", tmp_path / "alone.csv") < 1e-5


def test_a_killed_party_costs_nothing_but_time(twice: Twice) -> None:
    assert any("job process of shop ended" in line for line in twice.said)
    deployed, alone = open_run(twice.deployed).need_owner(), open_run(twice.alone).need_owner()
    assert set(deployed.memory) == set(alone.memory)
    # bit for bit, although the shop answered in two processes
    for name, tensor in alone.memory.items():
        assert torch.equal(deployed.memory[name], tensor), name
    assert torch.equal(deployed.labels, alone.labels)
    assert torch.equal(deployed.test.labels, alone.test.labels)
    for figures in ("rows", "bytes", "rounds", "class_rows"):
        assert deployed.metrics[figures] == alone.metrics[figures], figures
    for subset, figures in alone.metrics["subsets"].items():
        assert deployed.metrics["subsets"][subset] == pytest.approx(figures, abs=1e-5), subset
    assert deployed.metrics["gain"]["difference"] == pytest.approx(
        alone.metrics["gain"]["difference"], abs=1e-5
    )


def test_every_party_has_answered_every_round_and_its_log_is_whole(twice: Twice) -> None:
    for name in NAMES:
        folder = twice.federation.kit(name).run_folder("credit")
        latest = CheckpointStore(folder / "checkpoints").latest()
        assert latest is not None
        assert latest.round == 3  # features, further rows, rows to predict
        assert verify(folder / "audit.jsonl", str(latest.header["audit"]))[0] > 2 * 3
    assert not list((twice.federation.folder / "hub").rglob("*.safetensors"))


def test_passive_parties_wrote_down_what_their_replies_gave_away(twice: Twice) -> None:
    for name in NAMES:
        path = twice.federation.kit(name).run_folder("credit") / FILE
        assert path.exists() == (name != "bank")
        if path.exists():
            first = json.loads(path.read_text().splitlines()[0])
            assert max(first["given away"].values()) > 0.9  # columns are open as delivered


def test_each_company_keeps_its_own_part_and_no_other(twice: Twice) -> None:
    for name in NAMES:
        run = open_run(twice.federation.kit(name).run_folder("credit"))
        assert list(run.parties) == [name]
        assert (run.owner is not None) == (name == "bank")
        assert run.names == NAMES


def test_the_commands_of_own_files_work_on_the_run_folder(twice: Twice, tmp_path: Path) -> None:
    for command in ("inspect", "evaluate", "value"):
        assert main([command, str(twice.deployed)]) == 0
    assert main(["report", str(twice.deployed), "--out", str(tmp_path / "report.html")]) == 0


def test_where_all_files_are_at_hand_the_run_can_be_audited(twice: Twice, tmp_path: Path) -> None:
    """Its test rows were drawn from the bank's secret, which the audit uses and does not tell."""
    for name in NAMES:
        (tmp_path / name).mkdir()
        shutil.copy(twice.federation.folder / name / "moved.csv", tmp_path / name / "rows.csv")
    config, run = one_process(tmp_path), open_run(twice.deployed)
    own = of_run(run, config, split_seed=_secret_seed(twice.deployed))
    assert torch.equal(own.prepared.test_labels, run.need_owner().test.labels)
    assert own.seed == run.manifest["seed"] == 0
    with pytest.raises(UserError, match="do not give the rows"):
        of_run(run, config)
    assert _secret_seed(twice.alone) is None


def test_where_all_folders_come_together_predict_works_too(twice: Twice, tmp_path: Path) -> None:
    shutil.copytree(twice.deployed, tmp_path / "run")
    for name in ("shop", "tele"):
        shutil.copytree(
            twice.federation.kit(name).run_folder("credit") / name, tmp_path / "run" / name
        )
    out = tmp_path / "together.csv"
    inputs = [word for name, path in twice.new.items() for word in ("--input", f"{name}={path}")]
    assert main(["predict", str(tmp_path / "run"), *inputs, "--out", str(out)]) == 0
    assert (
        difference(twice.federation.kit("bank").run_folder("later") / "predictions.csv", out) < 1e-5
    )


def test_single_rows_over_the_standing_line_are_those_of_the_file(twice: Twice) -> None:
    """No job runs: the frames go through the main processes and the hub."""
    kit = twice.federation.kit("bank")
    for name in NAMES[1:]:
        path = twice.federation.folder / name / "policy.toml"
        path.write_text(path.read_text().replace("allow = false", "allow = true"))
    active = StandingActive(kit, serve_spec(kit, "credit"), Line(kit.folder).send)
    model = open_model(active, greet_s=120.0)
    try:
        wanted = probabilities(kit.run_folder("later") / "predictions.csv")
        answers = model.predict([Row(i) for i in wanted], 60.0)
        for answer in answers:
            p, parties = wanted[answer.id]
            assert "+".join(answer.parties) == parties, answer.absent
            assert answer.probabilities["yes"] == pytest.approx(p, abs=1e-5)
    finally:
        model.lead.close()
