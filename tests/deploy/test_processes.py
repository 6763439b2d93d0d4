"""Processes of a kit: found only if they are its own, started once, stopped to the last, and their
end explained.

A few lines of Python stand for NVFlare's processes; `tests/deploy/test_federation.py` starts the
real ones.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from protoevfl.deploy import os_process, processes
from protoevfl.deploy.kit import Identity, Kit, open_kit
from protoevfl.deploy.provision import Project, provision
from protoevfl.errors import UserError
from protoevfl.federation.engines import nvflare

WAIT = "print('up', flush=True); import sys; sys.stdin.read()"


def kit(folder: Path, hub: str = "localhost:1") -> Kit:
    return Kit(folder, Identity("p", "shop", "party", "Shop", hub, "bank", ("bank", "shop")))


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes that wait until they are ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*more: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", WAIT, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def record(folder: Path, **facts: Any) -> None:
    (folder / "process.json").write_text(json.dumps(facts))


# ------------------------------------------------------------ what runs


def test_nothing_runs_of_a_kit_that_nobody_started(tmp_path: Path) -> None:
    assert processes.status(kit(tmp_path)) == processes.Status(False, None, (), "not running")
    assert processes.stop(kit(tmp_path)) == 0
    assert processes.logs(kit(tmp_path)) == ""


def test_a_process_is_ours_only_if_it_began_when_ours_did(tmp_path: Path) -> None:
    born = os_process.born(os.getpid())
    assert born is not None
    record(tmp_path, pid=os.getpid(), born=born)
    found = processes.status(kit(tmp_path))
    assert (found.running, found.pid) == (True, os.getpid())
    assert found.detail == f"running as process {os.getpid()}, 0 job process(es)"
    record(tmp_path, pid=os.getpid(), born=born - 100)  # the number was given to another process
    assert not processes.status(kit(tmp_path)).running


@pytest.mark.parametrize("text", ["", "{", "{}", '{"pid": 1}', '{"pid": "x", "born": 1.0}'])
def test_a_damaged_record_is_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "process.json").write_text(text)
    assert not processes.status(kit(tmp_path)).running


def test_job_processes_are_counted_and_stopped_with_the_main_one(
    tmp_path: Path, child: Callable[..., subprocess.Popen[bytes]]
) -> None:
    main, worker = (child(os_process.MARK, str(tmp_path)) for _ in range(2))
    stranger = child(os_process.MARK, str(tmp_path / "other"))
    assert processes.status(kit(tmp_path)).detail == "not running; 2 leftover process(es)"
    record(tmp_path, pid=main.pid, born=os_process.born(main.pid))
    found = processes.status(kit(tmp_path))
    assert (found.pid, found.workers) == (main.pid, (worker.pid,))
    assert processes.stop(kit(tmp_path)) == 2
    assert processes.status(kit(tmp_path)) == processes.Status(False, None, (), "not running")
    assert not (tmp_path / "process.json").exists()
    assert stranger.poll() is None


# ------------------------------------------------------------ starting


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    project = Project("credit", "bank", "localhost", port, "Hub", {"bank": "Bank", "shop": "Shop"})
    return provision(project, tmp_path_factory.mktemp("kits"))


@pytest.fixture
def shop(made: dict[str, Path], tmp_path: Path) -> Kit:
    return open_kit(shutil.copytree(made["shop"], tmp_path / "shop"))


def stand_in(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """This instead of NVFlare's process."""
    monkeypatch.setattr(
        nvflare,
        "command",
        lambda role, folder, name, org: ["-c", code, os_process.MARK, str(folder)],
    )


def test_a_kit_is_started_once_and_leaves_a_log(shop: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "import signal; print('hello'); signal.pause()")
    found = processes.start(shop, wait_s=0)
    try:
        assert found.running
        assert os_process.born(found.pid or 0) is not None
        with pytest.raises(
            UserError, match=r"shop is already running; stop it first with `protoevfl deploy stop`"
        ):
            processes.start(shop, wait_s=0)
        assert processes.status(shop).pid == found.pid
    finally:
        assert processes.stop(shop, seconds=5) == 1
    assert processes.log_path(shop).exists()


def test_a_port_that_is_taken_is_named_and_nothing_is_started(made: dict[str, Path]) -> None:
    hub = open_kit(made["hub"])
    port = int(hub.identity.hub.split(":")[1])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", port))
        other.listen()
        with pytest.raises(
            UserError, match=f"port {port} cannot be used: Address already in use; is another hub"
        ):
            processes.start(hub, wait_s=0)
    assert not (hub.folder / "process.json").exists()
    assert not processes.log_path(hub).exists()


def test_a_kit_that_was_changed_is_not_started(shop: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "import signal; signal.pause()")
    (shop.folder / "local" / "resources.json").write_text("{}")
    with pytest.raises(UserError, match="changed after signing"):
        processes.start(shop, wait_s=0)
    assert not processes.status(shop).running


def test_workers_that_outlived_a_killed_parent_are_ended_before_a_start(
    shop: Kit, monkeypatch: pytest.MonkeyPatch, child: Callable[..., subprocess.Popen[bytes]]
) -> None:
    left = child(os_process.MARK, str(shop.folder))
    stand_in(monkeypatch, "pass")
    processes.start(shop, wait_s=0)
    assert os_process.born(left.pid) is None
    processes.stop(shop)


def test_a_log_that_cannot_be_written_is_one_line(
    shop: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "import signal; signal.pause()")
    (shop.folder / "log").write_text("a file")
    with pytest.raises(UserError, match=r"cannot write .*process\.log"):
        processes.start(shop, wait_s=0)
    assert os_process.of_folder(shop.folder) == []


def test_a_process_that_could_not_be_found_again_is_not_left_running(
    shop: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "import signal; signal.pause()")
    (shop.folder / "process.json").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*process\.json"):
        processes.start(shop, wait_s=0)
    assert os_process.of_folder(shop.folder) == []


@pytest.mark.parametrize("ignored", [(), (signal.SIGINT,)])
def test_staying_with_a_process_gives_its_exit_code_and_passes_signals_on(
    shop: Kit, monkeypatch: pytest.MonkeyPatch, ignored: tuple[int, ...]
) -> None:
    handlers: dict[int, Any] = {}
    before = dict.fromkeys(ignored, signal.SIG_IGN)
    monkeypatch.setattr(signal, "getsignal", lambda number: before.get(number, signal.SIG_DFL))
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    stand_in(monkeypatch, "raise SystemExit(3)")
    assert processes.run(shop) == 3
    # what a script with & or nohup ignores stays ignored
    assert set(handlers) == {signal.SIGTERM, signal.SIGINT} - set(ignored)
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert not (shop.folder / "process.json").exists()


def test_its_interpreter_is_the_first_on_its_path() -> None:
    found = processes._environment()
    assert found["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert found["PYTHONDONTWRITEBYTECODE"] == "1"  # a signed kit gets no new files


# ------------------------------------------------------------ until it is ready


def ready(
    opened: Kit,
    monkeypatch: pytest.MonkeyPatch,
    process: subprocess.Popen[bytes],
    line: str,
    end: bool = False,
) -> int:
    """Waits, and gives the number of pauses; in each the process writes a line, and ends if it is
    told to."""
    log, pauses = processes.log_path(opened), 0
    log.parent.mkdir(exist_ok=True)
    log.write_text("Successfully registered client\nunknown ca\n")  # of an earlier start

    def pause(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        with log.open("a") as file:
            file.write(line + "\n")
        if end:
            process.kill()
            process.wait()

    monkeypatch.setattr(time, "sleep", pause)
    processes._wait_ready(opened, process, 60.0, log.stat().st_size)
    return pauses


def test_a_party_is_ready_when_this_start_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, child: Callable[..., subprocess.Popen[bytes]]
) -> None:
    assert (
        ready(kit(tmp_path), monkeypatch, child(), "2026 - Successfully registered client:shop")
        == 1
    )


def test_a_hub_is_ready_when_it_listens(
    tmp_path: Path, child: Callable[..., subprocess.Popen[bytes]]
) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        hub = kit(tmp_path, f"localhost:{listening.getsockname()[1]}")
        hub = Kit(tmp_path, replace(hub.identity, role="hub"))
        assert not processes._listens(hub)
        listening.listen()
        processes._wait_ready(hub, child(), 60.0, 0)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("E0000 ssl: certificate expired", "the hub says this certificate has expired"),
        ("ERROR - disk is full", "ERROR - disk is full"),
        ("INFO - goodbye", "no reason given"),
    ],
)
def test_a_process_that_ends_at_once_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    child: Callable[..., subprocess.Popen[bytes]],
    line: str,
    why: str,
) -> None:
    with pytest.raises(UserError, match=f"shop stopped at once: {why}; see .*process.log"):
        ready(kit(tmp_path), monkeypatch, child(), line, end=True)


def test_a_party_that_does_not_join_is_stopped_and_the_hub_named(
    tmp_path: Path, child: Callable[..., subprocess.Popen[bytes]]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        where = f"127.0.0.1:{closed.getsockname()[1]}"
        process = child(os_process.MARK, str(tmp_path))
        with pytest.raises(
            UserError,
            match=rf"shop did not join the hub at {where} within 0 s: the hub cannot be re",
        ):
            processes._wait_ready(kit(tmp_path, where), process, 0.0, 0)
    assert os_process.born(process.pid) is None


def test_a_port_that_answers_is_not_blamed(
    tmp_path: Path, child: Callable[..., subprocess.Popen[bytes]]
) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        opened = kit(tmp_path, f"127.0.0.1:{listening.getsockname()[1]}")
        assert processes._dial(opened) == ""
        with pytest.raises(
            UserError, match="its port answers, but nothing comes back; see its log"
        ):
            processes._wait_ready(opened, child(), 0.0, 0)


def test_an_unknown_name_of_the_hub_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    assert (
        processes._dial(kit(tmp_path, "hbu.example:8002"))
        == "the name hbu.example is not known to this machine"
    )


# ------------------------------------------------------------ reasons


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "SSL routines:CERTIFICATE_VERIFY_FAILED: certificate has expired",
            "a certificate has expired",
        ),
        (
            "SSL routines:CERTIFICATE_VERIFY_FAILED: self signed certificate",
            "not signed by this kit's authority",
        ),
        ("tlsv1 alert certificate expired", "the hub says this certificate has expired"),
        ("tlsv1 alert unknown ca", "does not know this kit's authority"),
        ("party tele is not on the list of this hub: refused", "does not list this party"),
        ("UNAUTHENTICATED: registration refused", "the hub refused this party"),
        ("requires identity shop but got bank", "belongs to another party"),
        ("Cannot connect to server", "cannot be reached"),
        ("[Errno 111] connection refused", "cannot be reached"),
        ("[Errno -2] Name or service not known", "name is not known to this machine"),
        ("closing transport", "the hub ends the connection"),
        ("Socket closed", "the hub ends the connection"),
    ],
)
def test_what_the_log_says_is_put_into_words(line: str, words: str) -> None:
    log = f"INFO - starting\n2026 - ERROR - {line}\nINFO - waiting"
    assert words in processes._why(log)
    assert "\n" not in processes._why(log)


def test_no_reason_is_hidden_behind_an_earlier_one() -> None:
    assert [processes._why(sign) for sign, _ in processes._REASONS] == [
        meaning for _, meaning in processes._REASONS
    ]


def test_an_unknown_reason_is_the_last_error_cut_short() -> None:
    assert (
        processes._why("ERROR - first\nINFO - between\nValueError: second\nINFO - after")
        == "ValueError: second"
    )
    assert len(processes._why("ERROR - " + "x" * 1000)) == 200
    assert processes._why("INFO - all is well") == ""


# ------------------------------------------------------------ the log


def test_the_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = processes.log_path(kit(tmp_path))
    log.parent.mkdir()
    log.write_bytes(b"".join(b"line %d\n" % i for i in range(100)) + b"\xff broken\n")
    assert processes.logs(kit(tmp_path), 3).splitlines() == ["line 98", "line 99", "\ufffd broken"]
    assert len(processes.logs(kit(tmp_path)).splitlines()) == 50


def test_the_tail_begins_at_its_place_and_has_a_limit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"0123456789")
    assert processes._tail(log, 6) == "6789"
    assert processes._tail(log, 0, most=3) == "789"
    assert processes._tail(log, 10) == ""
    assert processes._tail(tmp_path / "none", 0) == ""


def test_what_a_process_says_before_it_dies_is_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be over before anybody looks at its log."""
    opened = kit(tmp_path)
    log = processes.log_path(opened)
    log.parent.mkdir()
    log.write_text("not on the list\n")  # of an earlier start

    def spawn(_: Kit) -> subprocess.Popen[bytes]:
        with log.open("a") as file:
            file.write("ERROR - unknown ca\n")
        process = subprocess.Popen(["false"])
        process.wait()
        return process

    monkeypatch.setattr(processes, "_spawn", spawn)
    with pytest.raises(
        UserError, match="stopped at once: the hub does not know this kit's authority"
    ):
        processes.start(opened, 5.0)


@pytest.mark.parametrize("text", ["[]", '{"pid": null, "born": 1}', "{}", "x"])
def test_a_record_of_another_shape_is_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "process.json").write_text(text)
    assert processes.status(kit(tmp_path)).running is False


def test_no_lines_of_the_log_are_no_lines(tmp_path: Path) -> None:
    opened = kit(tmp_path)
    processes.log_path(opened).parent.mkdir()
    processes.log_path(opened).write_text("a\nb\n")
    assert (processes.logs(opened, 0), processes.logs(opened, 1)) == ("", "b")


def test_python_s_own_words_for_an_expired_certificate_are_understood() -> None:
    said = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1006)"
    assert processes._why(said) == "a certificate has expired"
