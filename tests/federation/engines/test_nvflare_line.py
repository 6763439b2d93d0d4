"""The line between main processes carries bytes, and says when nobody answered (over a real hub:
tests/deploy/test_own_files.py)."""

import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply, new_cell_message

from protoevfl.federation.engines import nvflare_line
from protoevfl.federation.engines.nvflare import CallError

opened: list[Path] = []


def open_here(folder: Path, ask: nvflare_line.Ask) -> nvflare_line.Answer:
    opened.append(folder)
    return lambda caller, frame: ask(caller, frame + b" and back", 1.0)


class Cell:
    """Answers itself, as the party `bank`."""

    def __init__(self, core: bool = False) -> None:
        self.reply: Any = None
        self.target = ""
        if not core:
            self.core_cell = Cell(core=True)

    def register_request_cb(self, channel: str, topic: str, cb: Any) -> None:
        self.registered = (channel, topic, cb)

    def send_request(self, request: Any, target: str, **more: Any) -> Any:
        self.target = target
        return self.reply or make_reply(ReturnCode.OK, body=request.payload)


class Context:
    def __init__(self, folder: Path, cell: Cell) -> None:
        self.folder, self.cell = folder, cell

    def get_prop(self, key: str) -> Any:
        assert key == FLContextKey.WORKSPACE_OBJECT
        return self

    def get_root_dir(self) -> str:
        return str(self.folder)

    def get_engine(self) -> Any:
        return self

    def get_cell(self) -> Cell:
        return self.cell


def test_the_line_opens_when_the_party_is_connected(tmp_path: Path) -> None:
    cell = Cell()
    component = nvflare_line.Line(f"{__name__}:open_here")
    component.handle_event(EventType.BEFORE_CLIENT_REGISTER, Context(tmp_path, cell))
    assert not hasattr(cell, "registered")
    component.handle_event(EventType.SYSTEM_BOOTSTRAP, Context(tmp_path, cell))
    assert opened == [tmp_path]
    channel, topic, answer = cell.registered
    assert (channel, topic) == (nvflare_line.CHANNEL, nvflare_line.TOPIC)
    request = new_cell_message({MessageHeaderKey.ORIGIN: "bank"}, b"there")
    assert answer(request).payload == b"there and back"
    assert cell.core_cell.target == "bank"
    strange = new_cell_message({}, {"not": "bytes"})
    code = answer(strange).get_header(MessageHeaderKey.RETURN_CODE)
    assert code == ReturnCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "reply", [make_reply(ReturnCode.TIMEOUT), make_reply(ReturnCode.OK, body={"an": "object"})]
)
def test_no_answer_is_an_error(reply: Any) -> None:
    cell = Cell()
    cell.core_cell.reply = reply
    with pytest.raises(CallError):
        nvflare_line.asking(cell)("shop", b"frame", 1.0)


def test_a_party_that_fails_says_so() -> None:
    def fail(caller: str, frame: bytes) -> bytes:
        raise CallError("gone")

    code = nvflare_line.answering(fail)(new_cell_message({}, b"")).get_header(
        MessageHeaderKey.RETURN_CODE
    )
    assert code == ReturnCode.PROCESS_EXCEPTION


def test_only_a_large_frame_goes_in_parts() -> None:
    cell = Cell()
    ask = nvflare_line.asking(cell)
    assert ask("shop", bytes(nvflare_line.WHOLE), 1.0) == bytes(nvflare_line.WHOLE)
    assert (cell.core_cell.target, cell.target) == ("shop", "")
    assert len(ask("tele", bytes(nvflare_line.WHOLE + 1), 1.0)) == nvflare_line.WHOLE + 1
    assert cell.target == "tele"


def test_slow_answers_do_not_take_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads are NVFlare's, which needs some of them to stay connected."""
    monkeypatch.setattr(nvflare_line, "MOST_AT_ONCE", 2)
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def slow(caller: str, frame: bytes) -> bytes:
        begun.release()
        go_on.wait(10)
        return frame

    answer = nvflare_line.answering(slow)
    threads = [
        threading.Thread(target=answer, args=(new_cell_message({}, b"frame"),)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert all(begun.acquire(timeout=10) for _ in threads)
    refused = answer(new_cell_message({}, b"frame"))
    assert refused.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.SERVICE_UNAVAILABLE
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert answer(new_cell_message({}, b"frame")).payload == b"frame"
