"""Frames between processes of one machine: answers in any order, and an end that everybody hears of."""

import io
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from protoevfl.deploy import line


def pair(handle: line.Handle) -> line.Caller:
    """A caller whose requests `handle` answers in this process."""
    there_in, here_out = os.pipe()
    here_in, there_out = os.pipe()
    served = (os.fdopen(there_in, "rb"), os.fdopen(there_out, "wb"), handle)
    threading.Thread(target=line.serve, args=served, daemon=True).start()
    return line.Caller(os.fdopen(here_in, "rb"), os.fdopen(here_out, "wb"))


def test_a_packet_comes_out_as_it_went_in() -> None:
    stream = io.BytesIO()
    line.write_packet(stream, {"a": 1}, b"body")
    stream.seek(0)
    assert line.read_packet(stream) == ({"a": 1}, b"body")
    with pytest.raises(line.ClosedError):
        line.read_packet(stream)


def test_a_packet_over_the_limit_is_not_read() -> None:
    with pytest.raises(line.ClosedError, match="over the limit"):
        line.read_packet(io.BytesIO(b"\xff" * 8))


def test_answers_may_overtake_each_other_and_find_their_requests() -> None:
    def handle(head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        time.sleep(0.02 if body.endswith(b"0") else 0)
        return {"echo": head["text"]}, body

    caller = pair(handle)

    def ask(k: int) -> bool:
        facts, body = caller.ask({"text": str(k)}, str(k).encode(), 30)
        return facts["echo"] == str(k) and body == str(k).encode()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(50)))
    assert caller.waiting == {}


def test_whoever_waits_hears_that_the_other_end_is_gone() -> None:
    def fall_silent(head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        time.sleep(60)
        return {}, b""

    caller = pair(fall_silent)
    with pytest.raises(TimeoutError):
        caller.ask({}, b"", 0.05)
    broken = line.Caller(io.BytesIO(b""), io.BytesIO())
    end = time.monotonic() + 30
    while broken.open and time.monotonic() < end:
        time.sleep(0.01)
    with pytest.raises(line.ClosedError):
        broken.ask({}, b"", 1)
