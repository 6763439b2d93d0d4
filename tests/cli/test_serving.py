"""`deploy serve`, `key` and `recall`: what they refuse, in one line."""

from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from protoevfl.cli.main import main
from protoevfl.deploy.kit import Identity, write_identity
from protoevfl.deploy.standing import RECALLED
from protoevfl.serve import api_keys


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    who = Identity("p", "bank", "party", "b", "hub:1", "bank", ("bank", "shop"), "lead@bank.local")
    write_identity(tmp_path, who)
    return tmp_path


def test_a_key_is_shown_once_and_can_be_taken_away(
    kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "key", "loans", "--kit", str(kit), "--rows-per-day", "5"]) == 0
    key = capsys.readouterr().out.strip()
    assert api_keys.Callers(kit / api_keys.FILE).known(key).rows_per_day == 5
    assert main(["deploy", "key", "loans", "--kit", str(kit), "--remove"]) == 0
    assert api_keys.read(kit / api_keys.FILE) == {}
    assert main(["deploy", "key", "loans", "--kit", str(kit), "--remove"]) == 2


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--host", "0.0.0.0"], "can be reached from outside"),
        (["--over-limit", "ask"], "refuse or degrade"),
        (["--switch"], "no run 'credit' was submitted"),
        ([], "nobody may ask yet"),
    ],
)
def test_serving_is_refused_in_one_line(
    kit: Path, more: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "serve", "credit", "--kit", str(kit), *more]) == 2
    assert text in capsys.readouterr().err


def test_a_recall_needs_a_run_that_is_served(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "recall", "credit", "--kit", str(kit)]) == 2
    assert "is not served with bank" in capsys.readouterr().err
    folder = kit / "runs" / "credit-serve"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    assert main(["deploy", "recall", "credit", "--kit", str(kit)]) == 0
    assert (folder / RECALLED).exists()
