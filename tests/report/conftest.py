from pathlib import Path

import pytest

from protoevfl.experiments.accuracy import ACCURACY_TABLES, IMBALANCE
from protoevfl.experiments.costs import CONVERGENCE
from protoevfl.experiments.pieces import GRADIENT_NORM
from protoevfl.report.page import build
from tests.experiments import fake


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page from plausible records of four experiments."""
    cells = [c for c in (*ACCURACY_TABLES.cells, *CONVERGENCE.cells[:22]) if c.config.aligned == 200]
    records = fake.records([*cells, *IMBALANCE.cells[::4], *GRADIENT_NORM.cells[:3]], seeds=(0, 1, 2))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(build(records, "A <report> & more"), encoding="utf-8")
    return path
