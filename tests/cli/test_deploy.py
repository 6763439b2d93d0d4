"""`protoevfl deploy`: what a user types, and what is said to mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from protoevfl.cli.main import main
from protoevfl.deploy import durable
from protoevfl.deploy.audit_log import AuditLog
from protoevfl.deploy.job_file import complete
from protoevfl.deploy.kit import open_kit
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.review import ledger_of
from protoevfl.deploy.spec import JobSpec


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    assert main(["deploy", "init", "--out", str(folder)]) == 0
    assert (
        main(["deploy", "provision", str(folder / "project.toml"), "--out", str(folder / "kits")])
        == 0
    )
    return folder


def test_init_does_not_overwrite(kits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "init", "--out", str(kits)]) == 2
    assert "exists" in capsys.readouterr().err


def test_status_of_a_kit_that_does_not_run(kits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "status", str(kits / "kits" / "bank")]) == 0
    assert "not running; certificate valid until" in capsys.readouterr().out
    assert main(["deploy", "status", str(kits / "kits" / "bank"), "none"]) == 2
    assert "bank knows no run 'none'; its runs: " in capsys.readouterr().err


def test_jobs_are_submitted_by_the_active_party(
    kits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["deploy", "submit", str(kits / "job.toml"), "--kit", str(kits / "kits" / "shop")])
        == 2
    )
    assert "with the kit of the active party, bank" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("rnd = 3", "has no key 'rnd'"),
        ('method = "local"', "cannot be run between companies; these can: probe, vanilla"),
        ('preset = "best"', "has no preset 'best'"),
    ],
)
def test_mistakes_in_job_toml_are_one_line(
    kits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, word: str
) -> None:
    (tmp_path / "job.toml").write_text(f'run = "a"\n{text}\n')
    assert (
        main(["deploy", "submit", str(tmp_path / "job.toml"), "--kit", str(kits / "kits" / "bank")])
        == 2
    )
    assert word in capsys.readouterr().err


def test_the_audit_log_is_verified(kits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kit = kits / "kits" / "bank"
    path = kit / "runs" / "r" / "audit.jsonl"
    AuditLog(path).add("request", run="r", peer="shop", round=1)
    assert main(["deploy", "audit-log", "verify", str(kit), "r"]) == 0
    assert "1 lines, unchanged" in capsys.readouterr().out
    path.write_text(path.read_text().replace('"round": 1', '"round": 2'))
    assert main(["deploy", "audit-log", "verify", str(kit), "r"]) == 2
    assert "was changed" in capsys.readouterr().err


def test_a_run_name_does_not_lead_out_of_the_kit(
    kits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    AuditLog(kits / "elsewhere" / "audit.jsonl").add("request", run="r", peer="shop", round=1)
    kit = str(kits / "kits" / "bank")
    for run in ("../../../elsewhere", "..", "/etc", "r/../r"):
        assert main(["deploy", "audit-log", "verify", kit, run]) == 2
        assert main(["deploy", "review", run, "--kit", kit]) == 2
        assert capsys.readouterr().err.count("is not the name of a run") == 2


def test_review_and_ledger_say_in_words_what_leaves(
    kits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = open_kit(kits / "kits" / "shop")
    spec = complete(JobSpec("r", ("bank", "shop"), settings={"warm.epochs": 0}))
    durable.write(shop.run_folder("r") / "spec.json", json.dumps(spec.to_dict()).encode())
    assert main(["deploy", "review", "r", "--kit", str(shop.folder)]) == 0
    said = capsys.readouterr().out
    for words in (
        "64 numbers of each shared row, 5 times",
        "can rebuild most columns",
        "each of at least 10 rows",
        "bank: no row has left",
        "refused: warm.epochs = 0, accepted is 5 to 500",
    ):
        assert words in said
    policy = Policy.read(shop.folder / "policy.toml")
    ledger_of(shop.folder, policy).left(np.arange(3), "embedding", "r", "round 1")
    assert main(["deploy", "ledger", str(shop.folder)]) == 0
    assert "3 rows left, each at most 1 of 200 times" in capsys.readouterr().out


def test_a_folder_that_is_no_kit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "stop", str(tmp_path)]) == 2
    assert "is not a kit" in capsys.readouterr().err


def test_places_that_cannot_be_written_are_one_line(
    kits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("a file")
    assert main(["deploy", "init", "--out", str(tmp_path / "none")]) == 2
    assert (
        main(["deploy", "provision", str(kits / "project.toml"), "--out", str(tmp_path / "taken")])
        == 2
    )
    assert capsys.readouterr().err.count("error: cannot write") == 2
