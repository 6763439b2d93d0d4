"""The main process carries frames and starts the standing process; it opens none of them."""

import os
import sys
from pathlib import Path

import pytest

from protoevfl.deploy import relay
from protoevfl.deploy.kit import Identity, write_identity
from protoevfl.federation.engines.nvflare import CallError

ECHO = """
import sys
from protoevfl.deploy import line
def handle(head, body):
    if body == b"die":
        import os
        os._exit(1)
    return {}, head["caller"].encode() + body
line.serve(sys.stdin.buffer, sys.stdout.buffer, handle)
"""


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    folder = tmp_path / ("a-long-name-" * 12)
    folder.mkdir()
    write_identity(folder, Identity("p", "bank", "party", "b", "h:1", "bank", ("bank", "shop")))
    return folder


@pytest.fixture
def worker(kit: Path, monkeypatch: pytest.MonkeyPatch) -> relay.Worker:
    started = relay.subprocess.Popen
    monkeypatch.setattr(
        relay.subprocess,
        "Popen",
        lambda command, **more: started([sys.executable, "-c", ECHO], **more),
    )
    monkeypatch.setattr(relay, "RESTART_S", 0.0)
    return relay.Worker(kit)


def test_the_first_frame_starts_the_process_and_one_that_died_is_started_again(
    worker: relay.Worker,
) -> None:
    assert worker.answer("shop", b" asks") == b"shop asks"
    with pytest.raises(CallError):
        worker.answer("shop", b"die")
    assert worker.answer("shop", b" again") == b"shop again"


def test_a_process_that_dies_at_once_is_not_started_in_a_row(
    worker: relay.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.answer("shop", b"")
    with pytest.raises(CallError):
        worker.answer("shop", b"die")
    monkeypatch.setattr(relay, "RESTART_S", 600.0)
    with pytest.raises(CallError):
        worker.answer("shop", b"")


def test_the_service_reaches_the_parties_over_a_socket_that_is_the_owner_s_alone(kit: Path) -> None:
    def ask(party: str, frame: bytes, seconds: float) -> bytes:
        if party == "tele":
            raise CallError("away")
        return f"{party} {seconds:g} ".encode() + frame

    relay.listen(kit, ask)
    assert (kit / relay.SOCKET).stat().st_mode & 0o777 == 0o600
    way = relay.Line(kit)
    assert way.send("shop", b"frame", 2.0) == b"shop 2 frame"
    with pytest.raises(CallError, match="away"):
        way.send("tele", b"frame", 2.0)
    assert os.path.exists(kit / relay.SOCKET)


def test_without_a_main_process_the_error_says_what_to_start(kit: Path) -> None:
    with pytest.raises(CallError, match="deploy start"):
        relay.Line(kit).send("shop", b"", 1.0)


def test_the_line_of_a_kit_opens_with_its_main_process(kit: Path) -> None:
    answer = relay.open_relay(kit, lambda party, frame, seconds: frame)
    assert callable(answer)
    assert relay.Line(kit).send("shop", b"frame", 2.0) == b"frame"
