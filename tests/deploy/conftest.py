"""One hub and three parties as real processes, for all tests that need them."""

from collections.abc import Iterator

import pytest

from tests.faults.federation import Federation


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    running = Federation(tmp_path_factory.mktemp("federation"))
    try:
        running.up()
        yield running
    finally:
        running.down()
        assert running.all_processes() == []
