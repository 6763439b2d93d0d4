"""One small example, trained once for all tests of this folder."""

from pathlib import Path

import pytest

from protoevfl.artifacts.run_dir import Run, open_run
from protoevfl.pipeline.simulate import train_files
from protoevfl.settings.config import Config
from tests.pipeline.example import small_example


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return small_example(tmp_path_factory.mktemp("example"))


@pytest.fixture(scope="session")
def trained(config: Config) -> Path:
    """A run directory; do not change it."""
    train_files(config)
    return config.output


@pytest.fixture(scope="session")
def run(trained: Path) -> Run:
    return open_run(trained)


@pytest.fixture(scope="session")
def new(config: Config) -> dict[str, Path]:
    """New customers' files of each party."""
    folder = config.path.parent / "new"
    return {p.name: folder / p.file.name for p in config.parties}
