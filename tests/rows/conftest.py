"""What several tests of data sources share."""

from pathlib import Path

import pytest

from protoevfl.rows import fetch


@pytest.fixture
def nothing_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data of this machine, and no network."""

    def refuse(url: str, title: str) -> bytes:
        raise OSError("no network in tests")

    monkeypatch.setattr(fetch, "DEBIAN", tmp_path / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(fetch, "_download", refuse)
