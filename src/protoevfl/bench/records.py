"""Records: one JSON object per line, one line per finished run; appended, never rewritten: stopping
loses nothing.

A run is known by its key, the values of `KEY`; a key that is in the file is not run again. Each
line goes out in one write and is on the disk before the next run starts. A crash can tear the last
line only: readers pass over it, the next append removes it. Files ending in .gz are read, not
appended to.

    >>> a, b = {"dataset": "digits", "seed": 0}, {"seed": 0, "dataset": "digits", "seconds": 1.5}
    >>> key(a) == key(b)
    True
"""

import contextlib
import fcntl
import gzip
import json
import math
import os
import platform
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from protoevfl.errors import UserError

Record = Mapping[str, Any]
CELL = (
    "dataset",
    "method",
    "preset",
    "aligned",
    "setting",
    "classes",
    "shots",
    "parties",
    "pool",
    "profile",
    "open",
    "side",
    "labels",
    "overlap",
    "overrides",
)
# fields that older records lack, and what they meant
LATER = {"open": False, "side": "", "labels": "shared", "overlap": 0}
KEY = (*CELL, "seed")


class Cell(Protocol):
    """What `run.RunConfig` is to this file: everything of a run but its seed."""

    def identity(self) -> dict[str, Any]: ...


C = TypeVar("C", bound=Cell)


def key(record: Record, names: Sequence[str] = KEY) -> str:
    """The values that tell one run from another, as canonical JSON (tuples are lists, missing
    values null)."""
    return json.dumps({name: record.get(name, LATER.get(name)) for name in names}, sort_keys=True)


def cell_key(record: Record) -> str:
    """`key` without the seed."""
    return key(record, CELL)


def read(path: str | Path) -> list[dict[str, Any]]:
    """All whole records of a file; none when there is no file. A broken line before the last is an
    error."""
    path = Path(path)
    try:
        lines = _content(path).split(b"\n")
    except FileNotFoundError:
        return []
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {_reason(error)}") from None
    records = []
    for number, line in enumerate(lines, start=1):
        record = _parse(line)
        if record is not None:
            records.append(record)
        elif line.strip() and number < len(lines):
            raise UserError(f"{path} line {number} is not a JSON object; is this a records file?")
    return records


def append(path: str | Path, *new: Record) -> None:
    """Adds a line for each, all complete and on the disk when this returns, or none; safe beside
    other writers."""
    path = Path(path)
    lines = b"".join(json.dumps(finite(record), allow_nan=False).encode() + b"\n" for record in new)
    with _locked(path) as handle:
        size = _mend(handle)
        try:
            written = os.write(handle, lines)
            if written < len(lines):
                raise OSError(None, "the disk is full")
            os.fsync(handle)
        except OSError as error:
            os.ftruncate(handle, size)
            raise UserError(
                f"cannot write to {path}: {_reason(error)}; earlier lines are intact"
            ) from None


def finite(value: Any) -> Any:
    """JSON knows no NaN and no infinity: they become null (a diverged run is still a result).

    >>> finite({"loss": [1.0, float("nan")], "steps": 3})
    {'loss': [1.0, None], 'steps': 3}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list | tuple) else value


def check_writable(path: str | Path) -> None:
    """Refuses, before hours of work, a file that could not be appended to; creates nothing."""
    path = Path(path)
    if path.suffix == ".gz":
        raise UserError(f"{path}: records are appended to plain .jsonl files; choose another --out")
    if path.exists():
        if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
            raise UserError(f"cannot write to {path}: not a file that may be read and written")
    elif not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(
            f"cannot write to {path}: the folder {path.parent} does not exist or may not be "
            "written to"
        )


def missing(
    cells: Iterable[C], seeds: Sequence[int], done: Iterable[Record]
) -> list[tuple[C, list[int]]]:
    """Each cell with the seeds of it that `done` does not hold; cells with nothing missing are left
    out."""
    recorded = {key(record) for record in done}
    left = [
        (cell, [s for s in seeds if key({**cell.identity(), "seed": s}) not in recorded])
        for cell in cells
    ]
    return [(cell, seeds_left) for cell, seeds_left in left if seeds_left]


def of_cell(
    records: Iterable[Record], cell: Cell, seeds: Sequence[int] | None = None
) -> list[Record]:
    """The records of one cell (and seeds), one per seed: the last in the file counts."""
    wanted = cell_key(cell.identity())
    by_seed = {
        r["seed"]: r
        for r in records
        if cell_key(r) == wanted and (seeds is None or r["seed"] in seeds)
    }
    return [by_seed[seed] for seed in sorted(by_seed)]


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (None for one value).

    >>> mean_std([1.0, 2.0, 3.0]), mean_std([4.0])
    ((2.0, 1.0), (4.0, None))
    """
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


@cache
def stamp() -> dict[str, str]:
    """Where a record was made: commit ($PROTOEVFL_COMMIT, else what git says) and machine."""
    commit = os.environ.get("PROTOEVFL_COMMIT", "")
    if not commit:
        try:
            answer = subprocess.run(
                ["git", "rev-parse", "HEAD"],
                cwd=Path(__file__).parent,
                capture_output=True,
                text=True,
                timeout=10,
            )
            commit = answer.stdout.strip() if answer.returncode == 0 else ""
        except (OSError, subprocess.TimeoutExpired):
            commit = ""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"commit": commit or "unknown", "machine": machine}


def _content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UserError(f"cannot write to {path}: {_reason(error)}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _mend(handle: int) -> int:
    """Ends or removes a last line without line break; returns the size of the file."""
    size = os.fstat(handle).st_size
    tail, start = b"", size
    while start > 0 and b"\n" not in tail:
        step = min(start, 1 << 16)
        start -= step
        tail = os.pread(handle, step, start) + tail
    torn = tail.rpartition(b"\n")[2]
    if not torn:
        return size
    if _parse(torn) is None:
        os.ftruncate(handle, size - len(torn))
        return size - len(torn)
    os.write(handle, b"\n")
    return size + 1


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
