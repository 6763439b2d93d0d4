from pathlib import Path

import pytest

from protoevfl.reproduction.ablation import GRADIENT_NORM
from protoevfl.reproduction.accuracy import ACCURACY_TABLES, IMBALANCE
from protoevfl.reproduction.costs import CONVERGENCE
from protoevfl.reproduction.pages.page import build
from tests.reproduction import fake


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page from plausible records of four experiments."""
    cells = [
        c for c in (*ACCURACY_TABLES.cells, *CONVERGENCE.cells[:22]) if c.config.aligned == 200
    ]
    records = fake.records(
        [*cells, *IMBALANCE.cells[::4], *GRADIENT_NORM.cells[:3]], seeds=(0, 1, 2)
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(build(records, "A <report> & more"), encoding="utf-8")
    return path
