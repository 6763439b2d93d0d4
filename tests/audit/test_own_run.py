"""Audits of own files: a configuration, a run directory, and one company's half alone."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from protoevfl.artifacts.run_dir import open_run
from protoevfl.audit.own_run import of_run
from protoevfl.audit.record import record
from protoevfl.cli.main import main
from protoevfl.errors import UserError
from protoevfl.messages import SendFeatures
from protoevfl.pipeline.simulate import train_files
from protoevfl.rows.example import write_example
from protoevfl.settings.config import load

COLUMNS = {"insurer": {"premium", "claims", "bonus", "region"}}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of three companies with a trained run in it."""
    folder = tmp_path_factory.mktemp("shop")
    train_files(load(write_example(folder, rows=600)))
    return folder


def audited(*arguments: object, out: Path) -> dict[str, Any]:
    assert main(["audit", *map(str, arguments), "--out", str(out), "--known", "0", "-q"]) == 0
    facts: dict[str, Any] = json.loads((out / "audit.json").read_text(encoding="utf-8"))
    return facts


def test_a_run_is_attacked_with_the_labels_and_columns_at_hand(shop: Path, tmp_path: Path) -> None:
    facts = audited(shop / "run", out=tmp_path)
    assert facts["config"]["labels"] == "all"
    assert set(facts["columns"]["insurer"]) == COLUMNS["insurer"]
    rebuilt = [
        ways["from what it sends"] for found in facts["columns"].values() for ways in found.values()
    ]
    assert min(rebuilt) > 0.8  # features are the columns
    assert facts["pools"] == {}
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    for words in (
        "premium",
        "Of rows that nobody shares nothing was sent",
        "Nothing made of labels",
    ):
        assert words in page


def test_what_is_attacked_is_what_the_run_was_sent(shop: Path) -> None:
    run = open_run(shop / "run")
    own = of_run(run, load(shop / "protoevfl.toml"))
    (recording,) = record(own, [own.seed], device="cpu")
    kept = run.need_owner().memory["embeddings"]
    sent = {p: a for p, q, a in recording.transcript if isinstance(q, SendFeatures)}
    for party in (1, 2):
        values: Any = sent[party]
        width = values.values.shape[1]
        assert torch.allclose(values.values, kept[party, :, :width])


def test_few_numbers_give_less_away_and_every_level_is_measured_by_one_company_alone(
    shop: Path, tmp_path: Path
) -> None:
    text = (shop / "protoevfl.toml").read_text(encoding="utf-8")
    few = tmp_path / "protoevfl.toml"
    few.write_text('columns = "few"\n' + text, encoding="utf-8")
    (tmp_path / "telco.csv.gz").write_bytes((shop / "telco.csv.gz").read_bytes())
    facts = audited(few, "--party", "telco", out=tmp_path / "half")  # no other file is there
    assert facts["level"] == "few"
    most, less = (sum(facts["levels"][level].values()) for level in ("open", "few"))
    assert most > less + 1
    stored = audited(shop / "run", "--party", "telco", out=tmp_path / "stored")
    assert list(stored["levels"]) == ["open"]
    assert min(stored["levels"]["open"].values()) > 0.8
    elsewhere = audited(
        shop / "run", "--party", "telco", "--file", shop / "telco.csv.gz", out=tmp_path / "file"
    )
    assert elsewhere["levels"] == stored["levels"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["protoevfl.toml", "--party", "bank"], "bank holds the labels"),
        (["protoevfl.toml", "--party", "shop"], "has no party 'shop'; it has bank, insurer, telco"),
        (["run", "--party", "bank"], "bank holds the labels"),
        (["--party", "bank"], "--party goes with a protoevfl.toml or a run directory"),
        (["new"], "is not a run directory"),
    ],
)
def test_what_cannot_be_audited_is_said_in_one_line(
    shop: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    first = [arguments[0]] if arguments[0].startswith("-") else [str(shop / arguments[0])]
    assert main(["audit", *first, *arguments[1:], "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_files_that_have_changed_since_the_run_are_named(shop: Path, tmp_path: Path) -> None:
    other = load(write_example(tmp_path / "other", rows=700))
    with pytest.raises(UserError, match="have changed since, or it is another configuration"):
        of_run(open_run(shop / "run"), other)
