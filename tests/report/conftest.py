"""One small example, trained once for all tests of this folder, and its page."""

from dataclasses import replace
from pathlib import Path

import pytest

from protoevfl.artifacts.owner import TestRows
from protoevfl.artifacts.run_dir import open_run, write_run
from protoevfl.pipeline.simulate import train_files
from protoevfl.report import run_page
from tests.pipeline.example import small_example


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory; do not change it."""
    config = small_example(tmp_path_factory.mktemp("decision"), rows=900)
    train_files(config)
    return config.output


@pytest.fixture
def untested(trained: Path, tmp_path: Path) -> Path:
    """The same run as it were without test rows."""
    run = open_run(trained)
    owner = run.need_owner()
    figures = {
        name: owner.metrics[name] for name in ("bytes", "rounds", "seconds", "class_rows", "notes")
    }
    none = TestRows({m: f[:0] for m, f in owner.test.embeddings.items()}, owner.test.labels[:0])
    facts = {name: run.manifest[name] for name in ("method", "privacy", "seed")}
    kept = replace(owner, test=none, metrics={"rows": 0, **figures})
    write_run(tmp_path / "run", list(run.parties.values()), kept, facts)
    return tmp_path / "run"


@pytest.fixture(scope="session")
def page(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("page") / "report.html"
    target.write_text(run_page.build(trained), encoding="utf-8")
    return target
