"""Processes of this machine, told apart from later ones that were given the same number."""

import ctypes
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from protoevfl.deploy.spare import WAITS

MARK = "nvflare.private.fed.app"  # in the command line of every process of a kit
STANDING = "protoevfl.deploy.standing_worker"  # and of the one that serves single rows
SPARE = "protoevfl.deploy.spare"  # and of the one that waits for a job
ARENA_MAX = -8  # M_ARENA_MAX of malloc.h
MOST_ARENAS = 2


def share_heaps() -> None:
    """Threads of this process, from now on, share two heaps. glibc gives threads up to eight heaps
    per core, and each keeps what was freed in it, so that a process that answers many requests
    grows for hours. Another C library has no such setting."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(ARENA_MAX, MOST_ARENAS)


def born(pid: int) -> float | None:
    """When the process began, None if it is gone (or a zombie)."""
    import psutil  # type: ignore[import-untyped]

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    return None


def of_folder(folder: Path) -> list[Any]:
    """The processes that work in a kit: those we started there, and those that they started."""
    import psutil

    processes = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if (
            alive
            and str(folder) in line
            and any(m in part for part in line for m in (MARK, STANDING, SPARE))
        ):
            processes.append(process)
    return processes


def waits(process: Any) -> bool:
    """Whether it has loaded what a job needs, and has no job yet."""
    import psutil

    with suppress(psutil.Error):
        return bool(process.name() == WAITS)
    return False


def end(processes: list[Any], seconds: float) -> None:
    """Ask them to end (also those that were stopped), then kill what is left."""
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    for process in alive:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=5)
