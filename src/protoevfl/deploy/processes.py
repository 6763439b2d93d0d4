"""Starting, watching and stopping the processes of a kit; every process found is one this kit
started."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from protoevfl.deploy import durable, kit, os_process, place
from protoevfl.deploy.kit import Kit
from protoevfl.errors import UserError
from protoevfl.federation.engines import nvflare

READY_S = 60.0
STOP_S = 10.0
_JOINED = "Successfully registered client"


@dataclass(frozen=True)
class Status:
    """What runs of a kit."""

    running: bool
    pid: int | None
    workers: tuple[int, ...]  # processes of jobs
    detail: str


def log_path(opened: Kit) -> Path:
    return opened.folder / "log" / "process.log"


def start(opened: Kit, wait_s: float = READY_S) -> Status:
    """Start the kit in the background; returns when the hub listens or the party has joined it."""
    log = log_path(opened)
    before = log.stat().st_size if log.exists() else 0
    process = _spawn(opened)
    if wait_s > 0:
        _wait_ready(opened, process, wait_s, before)
    return status(opened)


def run(opened: Kit) -> int:
    """Start the kit and stay with it (for systemd and containers); returns its exit code."""
    process = _spawn(opened)
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) != signal.SIG_IGN:  # started with nohup or in a script with &
            signal.signal(number, lambda *_: stop(opened))
    return process.wait()


def _spawn(opened: Kit) -> "subprocess.Popen[bytes]":
    kit.check(opened)
    place.check(opened)
    if status(opened).running:
        raise UserError(
            f"{opened.name} is already running; stop it first with `protoevfl deploy stop`"
        )
    os_process.end(os_process.of_folder(opened.folder), 0)  # workers that outlived a killed parent
    if opened.identity.role == "hub":
        _check_port(opened)
    kit.settle(opened)
    log = log_path(opened)
    try:
        log.parent.mkdir(exist_ok=True)
        output = log.open("ab")
    except OSError as error:
        raise UserError(
            f"cannot write {log}: {error.strerror}; the kit must lie on a disk with room for it"
        ) from None
    arguments = nvflare.command(
        opened.identity.role, opened.folder, opened.name, opened.identity.org
    )
    with output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=opened.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=_environment(),
        )
    facts = {"pid": process.pid, "born": os_process.born(process.pid)}
    try:
        durable.write(opened.folder / "process.json", json.dumps(facts).encode())
        place.note(opened)
    except UserError:  # nobody would find it again
        process.kill()
        process.wait()
        raise
    return process


def _environment() -> dict[str, str]:
    bin_folder = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", "")
    return {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{path}", "PYTHONDONTWRITEBYTECODE": "1"}


def _check_port(opened: Kit) -> None:
    port = int(opened.identity.hub.rsplit(":", 1)[1])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise UserError(
                f"port {port} cannot be used: {error.strerror}; is another hub running?"
            ) from None


def _wait_ready(
    opened: Kit, process: "subprocess.Popen[bytes]", seconds: float, before: int
) -> None:
    """Until the log, from byte `before` on, or the port says so."""
    log = log_path(opened)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = _tail(log, before)
        if process.poll() is not None:
            raise UserError(
                f"{opened.name} stopped at once: {_why(text) or 'no reason given'}; see {log}"
            )
        if opened.identity.role == "hub" and _listens(opened):
            return
        if _JOINED in text:
            return
        time.sleep(0.2)
    reason = (
        _dial(opened)
        or _why(_tail(log, before))
        or "its port answers, but nothing comes back; see its log"
    )
    stop(opened)
    raise UserError(
        f"{opened.name} did not join the hub at {opened.identity.hub} within {seconds:g} s: "
        f"{reason}"
    )


def _listens(opened: Kit) -> bool:
    port = int(opened.identity.hub.rsplit(":", 1)[1])
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


_CLOSED = "the hub ends the connection (its log says why: certificate expired, or made out to another name?)"
_REASONS = (
    ("certificate has expired", "a certificate has expired"),
    ("CERTIFICATE_VERIFY_FAILED", "the hub's certificate is not signed by this kit's authority"),
    ("certificate expired", "the hub says this certificate has expired"),
    ("unknown ca", "the hub does not know this kit's authority"),
    ("not on the list", "the hub does not list this party"),
    (
        "unauthenticated",
        "the hub refused this party: it is not on its list, its certificate is another's, or this "
        "is a second copy of its kit (if it moved: `protoevfl deploy move` at the hub)",
    ),
    ("requires identity", "the certificate belongs to another party"),
    ("Cannot connect", "the hub cannot be reached; is it started, and is its port open?"),
    ("Connection refused", "the hub cannot be reached; is it started, and is its port open?"),
    ("Name or service not known", "the hub's name is not known to this machine"),
    ("closing transport", _CLOSED),
    ("closed", _CLOSED),
)


def _why(text: str) -> str:
    for sign, meaning in _REASONS:
        if sign.lower() in text.lower():
            return meaning
    lines = [line for line in text.splitlines() if "ERROR" in line or "Error" in line]
    return lines[-1][-200:] if lines else ""


def _dial(opened: Kit) -> str:
    """Why the hub cannot be reached, "" when its port answers."""
    host, port = opened.identity.hub.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            return ""
    except socket.gaierror:
        return f"the name {host} is not known to this machine"
    except OSError as error:
        return f"the hub cannot be reached ({error.strerror or error}); is it started, and is its port open?"


def _tail(log: Path, start_at: int, most: int = 1 << 20) -> str:
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(start_at, log.stat().st_size - most))
        return file.read().decode(errors="replace")
    return ""


def logs(opened: Kit, lines: int = 50) -> str:
    """The last lines of the kit's log."""
    return "\n".join(_tail(log_path(opened), 0).splitlines()[-lines:] if lines > 0 else [])


def status(opened: Kit) -> Status:
    """What runs of this kit now."""
    pid = _recorded(opened)
    processes = [p for p in os_process.of_folder(opened.folder) if not os_process.waits(p)]
    others = tuple(p.pid for p in processes if p.pid != pid)
    if pid is None:
        detail = f"not running; {len(others)} leftover process(es)" if others else "not running"
        return Status(False, None, others, detail)
    return Status(True, pid, others, f"running as process {pid}, {len(others)} job process(es)")


def stop(opened: Kit, seconds: float = STOP_S) -> int:
    """Stop everything of this kit; returns how many processes there were. None is left when it
    returns."""
    processes = os_process.of_folder(opened.folder)
    os_process.end(processes, seconds)
    os_process.end(os_process.of_folder(opened.folder), 0)
    with suppress(OSError):  # a read-only disk; the number in it is no longer a process of ours
        (opened.folder / "process.json").unlink(missing_ok=True)
    return len(processes)


def _recorded(opened: Kit) -> int | None:
    """The main process, if it is still the one that was started (a number can be given to another
    process)."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        facts = json.loads((opened.folder / "process.json").read_text())
        pid = int(facts["pid"])
        if os_process.born(pid) == facts["born"]:
            return pid
    return None
