"""Disks that are full or read-only, with real processes; needs root for the mounts (a case says so
where it has none).

Each trial returns the words of the error, or "" when anything was not as it must be: a clear error
that names the party and no path, checkpoints of earlier rounds whole, the same result after the
disk is mended.
"""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from protoevfl.deploy import processes
from protoevfl.deploy.checkpoints import CheckpointStore
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from tests.faults.cases import quiet
from tests.faults.federation import Federation, same

# kB: full after some rounds (the active party keeps a journal of all)
SMALL = {"party": 300, "active": 700}


def _shell(*words: str) -> bool:
    return subprocess.run(words, capture_output=True).returncode == 0


@contextlib.contextmanager
def disk_of(federation: Federation, name: str, kilobytes: int) -> Iterator[Path]:
    """The runs of a kit lie on a disk of their own."""
    folder = federation.folder / name / "runs"
    folder.mkdir(exist_ok=True)
    if not _shell("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)):
        raise PermissionError("not tried: mounting needs root")
    try:
        yield folder
    finally:
        time.sleep(2)
        processes.stop(federation.kit(name), seconds=0.5)
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _stopped(federation: Federation, spec: JobSpec, start: Callable[[], None]) -> str:
    try:
        start()
    except UserError as error:
        return str(error)
    return ""


def _whole(federation: Federation, name: str, run: str, least: int) -> bool:
    """Every checkpoint and journal entry that is there can be read, and there are some."""
    folder = federation.kit(name).run_folder(run)
    stores = [CheckpointStore(folder / "checkpoints")]
    if name == federation.parties[0]:
        stores.append(CheckpointStore(folder / "journal"))
    for store in stores:
        for number in store.rounds():
            store.load(number)  # raises where it is damaged
    latest = stores[0].latest()
    return latest is not None and latest.round >= least


def full(federation: Federation, name: str) -> str:
    """The disk fills up in the middle of training; after making room the same run is finished."""
    federation.up()
    size = SMALL["active" if name == federation.parties[0] else "party"]
    with disk_of(federation, name, size) as folder:
        spec = federation.spec(
            f"full-{name}-{int(time.time())}", settings={"rounds": 10, "rows": 1000}
        )
        said = _stopped(federation, spec, lambda: federation.submit(spec, quiet).done(150) and None)
        whole = _whole(federation, name, spec.run, 0)
        subprocess.run(["mount", "-o", "remount,size=50m", str(folder)], check=True)
        federation.resume(spec, quiet).done(150)
        clean = "No space" in said and (name in said or name == federation.parties[0])
        good = clean and whole and same(federation, spec)
        return said.replace(str(federation.folder), "KITS") if good else ""


def full_hub(federation: Federation) -> str:
    """The hub has no room for the job: the run is not begun and says so; with room it runs."""
    hub = federation.kit("hub")
    processes.stop(hub, seconds=0.5)
    folder = federation.folder / "hub" / "jobs"
    folder.mkdir(exist_ok=True)
    if not _shell("mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)):
        raise PermissionError("not tried: mounting needs root")
    try:
        federation.up()
        spec = federation.spec(f"full-hub-{int(time.time())}", settings={"rounds": 3}, wait_s=30.0)
        said = _stopped(federation, spec, lambda: federation.submit(spec, quiet).done(200) and None)
        subprocess.run(["mount", "-o", "remount,size=50m", str(folder)], check=True)
        federation.resume(spec, quiet).done(150)
        return said if "is its disk full" in said and same(federation, spec) else ""
    finally:
        processes.stop(hub, seconds=0.5)
        subprocess.run(["umount", "-l", str(folder)], check=True)


def read_only(federation: Federation, name: str) -> str:
    """The folder of checkpoints becomes read-only in the middle of training (an immutable folder
    binds root too)."""
    federation.up()
    spec = federation.spec(f"ro-{name}-{int(time.time())}", settings={"rounds": 10, "seconds": 0.5})
    running = federation.submit(spec, quiet)
    federation.wait_for_round(spec.run, 3)
    folder = federation.kit(name).run_folder(spec.run) / "checkpoints"
    if not _shell("chattr", "+i", str(folder)):
        running.done()
        raise PermissionError("not tried: chattr +i needs root and a file system that has it")
    try:
        said = _stopped(federation, spec, lambda: running.done(150) and None)
        whole = _whole(federation, name, spec.run, 3)
    finally:
        _shell("chattr", "-i", str(folder))
    federation.resume(spec, quiet).done(150)
    good = "cannot write" in said and (name in said) and whole and same(federation, spec)
    return said.replace(str(federation.folder), "KITS") if good else ""


def read_only_kit(federation: Federation, name: str) -> str:
    """A kit on a read-only disk does not start, and says why."""
    processes.stop(federation.kit(name), seconds=0.5)
    folder = str(federation.folder / name)
    if not (
        _shell("mount", "--bind", folder, folder)
        and _shell("mount", "-o", "remount,ro,bind", folder)
    ):
        raise PermissionError("not tried: mounting needs root")
    try:
        said = _stopped(
            federation, federation.spec("x"), lambda: processes.start(federation.kit(name)) and None
        )
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
    return said.replace(str(federation.folder), "KITS") if "Read-only" in said else ""


TRIALS: dict[str, Callable[[Federation], str]] = {
    "full disk of a party": partial(full, name="tele"),
    "full disk of the active party": partial(full, name="bank"),
    "full disk of the hub": full_hub,
    "read-only checkpoints of a party": partial(read_only, name="tele"),
    "read-only checkpoints of the active party": partial(read_only, name="bank"),
    "read-only kit of a party": partial(read_only_kit, name="tele"),
    "read-only kit of the hub": partial(read_only_kit, name="hub"),
}
