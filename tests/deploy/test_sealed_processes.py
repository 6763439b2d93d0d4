"""The sealed level between real processes: a party and the label owner are killed in the middle, and
the predictions are those of one process."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("gmpy2")
pytest.importorskip("nvflare")
pytest.importorskip("private_set_intersection")

from protoevfl.artifacts.run_dir import open_run
from protoevfl.deploy.job_file import complete
from protoevfl.deploy.secret import run_seed
from protoevfl.deploy.spec import JobSpec
from protoevfl.pipeline.predict import predict, write_predictions
from protoevfl.pipeline.simulate import train_files
from tests.faults.companies import NAMES, one_process, probabilities, write_files
from tests.faults.federation import Federation, kill

pytestmark = pytest.mark.xdist_group("companies")
# no label and no score is replaced by a draw, no sum is noisy: the two runs draw from different secrets
WIDE = {"sealed.most_of_number": 1.0}
EXACT = {"privacy.sum_noise": 0.0}
EPSILON = 500.0


@pytest.fixture
def wide(federation: Federation) -> Iterator[Federation]:
    """Kits whose policy lets two columns make up a score; the policies are put back."""
    federation.up()
    write_files(federation.folder)
    kept = {name: federation.kit(name).folder / "policy.toml" for name in NAMES}
    before = {name: path.read_text() for name, path in kept.items()}
    for name, path in kept.items():
        path.write_text(before[name] + '"sealed.most_of_number" = [0, 1]\n')
    yield federation
    for name, path in kept.items():
        path.write_text(before[name])


def test_with_party_and_owner_killed_the_predictions_are_those_of_one_process(
    wide: Federation, tmp_path: Path
) -> None:
    spec = complete(
        JobSpec(
            "sealed",
            NAMES,
            preset="sealed",
            settings=WIDE,
            rounds=20,
            privacy={"label_epsilon": EPSILON, "sum_noise": 0.0},
            deadline_s=60.0,
            wait_s=120.0,
        )
    )
    said: list[str] = []
    running = wide.submit(spec, said.append)
    wide.wait_for_round("sealed", 1)  # labels are sealed and summed
    kill(*wide.workers("shop"), *wide.workers("bank"))
    assert running.done()["state"] == "done", said
    config = one_process(wide.folder)
    config = replace(
        config,
        seed=run_seed(wide.folder / "bank", "sealed"),
        output=tmp_path / "run",
        method=replace(config.method, preset="sealed", overrides=WIDE | EXACT),
        privacy=replace(config.privacy, label_epsilon=EPSILON),
    )
    train_files(config)
    asked = {name: wide.folder / name / "rows.csv" for name in NAMES}
    write_predictions(predict(open_run(config.output), asked, "cpu"), tmp_path / "one.csv")
    alone = probabilities(tmp_path / "one.csv")
    deployed = probabilities(wide.kit("bank").run_folder("sealed") / "predictions.csv")
    assert deployed
    for person, (p, parties) in deployed.items():
        assert alone[person][1] == parties
        assert abs(alone[person][0] - p) < 1e-5
