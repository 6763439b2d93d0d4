"""A service over three companies whose parties answer in this process."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from protoevfl.serve.service import Model, Service
from tests.deploy.standing import Standing, standing


@dataclass
class Served:
    companies: Standing
    model: Model
    service: Service

    def shared(self, count: int = 1) -> list[str]:
        """Customers of all parties."""
        partners = self.model.lead.partners.values()
        return [i for i in self.model.table.place if all(p.has(i) for p in partners)][:count]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    companies = standing(tmp_path)
    model = Model(companies.active(), companies.lead())
    service = Service()
    service.add(model)
    yield Served(companies, model, service)
    model.lead.close()
