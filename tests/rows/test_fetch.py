"""Files are found in order, downloads are checked, nothing half-written stays."""

import gzip
import hashlib
from pathlib import Path

import pytest

from protoevfl.errors import UserError
from protoevfl.rows import fetch, table_sources

CONTENT = b"row\n" * 1000


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No Debian place, no $PROTOEVFL_DATA, a cache of its own."""
    monkeypatch.setattr(fetch, "DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PROTOEVFL_DATA", raising=False)
    return tmp_path


def remote(source: Path, sha256: str = hashlib.sha256(CONTENT).hexdigest()) -> fetch.Remote:
    return fetch.Remote("rows.gz", (source.as_uri(),), sha256, fetch.gunzip, "Ask for rows.gz")


def packed(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content))
    return path


def test_places_are_searched_in_order(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = packed(empty / "cache" / "protoevfl" / "rows.gz")
    assert fetch.find("rows.gz") == cached
    debian = packed(empty / "debian" / "rows.gz")
    assert fetch.find("rows.gz") == debian
    monkeypatch.setenv("PROTOEVFL_DATA", str(empty / "own"))
    own = packed(empty / "own" / "fashion-mnist" / "rows.gz")
    assert fetch.find("rows.gz") == own
    assert fetch.find("rows.gz", root=empty / "elsewhere") == debian


def test_download_goes_to_the_cache_once(empty: Path) -> None:
    source = packed(empty / "server" / "rows.gz")
    path = fetch.obtain(remote(source))
    assert path == empty / "cache" / "protoevfl" / "rows.gz"
    assert gzip.decompress(path.read_bytes()) == CONTENT
    source.unlink()
    assert fetch.obtain(remote(source)) == path


def test_packing_does_not_matter_only_the_content(empty: Path) -> None:
    source = empty / "server.gz"
    source.write_bytes(gzip.compress(CONTENT, compresslevel=1, mtime=123))
    assert gzip.decompress(fetch.obtain(remote(source)).read_bytes()) == CONTENT


@pytest.mark.parametrize(
    "content", [gzip.compress(b"other"), b"not gzip", b""], ids=["other", "not gzip", "empty"]
)
def test_wrong_download_is_refused_and_leaves_nothing(empty: Path, content: bytes) -> None:
    source = empty / "server.gz"
    source.write_bytes(content)
    with pytest.raises(UserError, match="download failed"):
        fetch.obtain(remote(source))
    assert not list((empty / "cache").rglob("*.gz"))


def test_damaged_archive_is_refused(empty: Path) -> None:
    source = empty / "adult.zip"
    source.write_bytes(b"PK not a zip")
    adult = fetch.Remote("adult.csv.gz", (source.as_uri(),), "", table_sources._adult_csv, "Ask")
    with pytest.raises(UserError, match="not a zip file"):
        fetch.obtain(adult)


def test_error_names_every_place_and_the_way_out(empty: Path) -> None:
    with pytest.raises(UserError) as caught:
        fetch.obtain(remote(empty / "nowhere.gz"))
    text = str(caught.value)
    for part in (
        "rows.gz",
        "$PROTOEVFL_DATA (not set)",
        "debian",
        "cache",
        "nowhere.gz",
        "Ask for rows.gz",
    ):
        assert part in text
    assert "\n" not in text


def test_gzip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "LARGEST", 1000)
    with pytest.raises(ValueError, match="more than"):
        fetch.gunzip(gzip.compress(bytes(5000)))


def test_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch.write_whole(tmp_path / "rows.gz", CONTENT)
    assert list(tmp_path.iterdir()) == []
