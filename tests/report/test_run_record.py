"""`protoevfl report` on a run directory of `protoevfl train`: one page with names of classes and
parties."""

import re
import shutil
from pathlib import Path

import pytest

from protoevfl.cli.main import main
from protoevfl.errors import UserError
from protoevfl.pipeline.simulate import train_files
from protoevfl.reproduction.pages.page import load
from tests.pipeline.example import small_example


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = small_example(tmp_path_factory.mktemp("example"))
    train_files(config)
    return config.output


def test_the_command_writes_a_page_beside_the_run(trained: Path) -> None:
    assert main(["report", str(trained)]) == 0
    html = (trained / "report.html").read_text(encoding="utf-8")
    for needed in ("bank + insurer", "Always answering no", "Labelled rows", "Confusion", "0 no", "1 yes", "epsilon",
                   "Embeddings", "warm.epochs"):  # fmt: skip
        assert needed in html
    assert "Nothing recorded" not in html
    outside = re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)
    ids = re.findall(r'\bid="([^"]+)"', outside)
    assert len(ids) == len(set(ids))


def test_the_record_holds_what_the_owner_measured(trained: Path) -> None:
    (record,) = load(trained)
    assert record["parties"] == 3
    assert sum(map(sum, record["metrics"]["confusion"])) == record["test_rows"]
    assert set(record["metrics"]["subsets"]) >= {"bank", "bank+insurer+telco"}


def test_a_run_without_the_owner_is_one_clear_line(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    shutil.rmtree(folder / "owner")
    with pytest.raises(UserError, match="no owner folder"):
        load(folder)
    assert main(["report", str(folder)]) == 2
    assert "only the company with the labels" in capsys.readouterr().err
