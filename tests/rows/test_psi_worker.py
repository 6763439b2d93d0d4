"""The worker of private set intersection: it answers every job, right or wrong, and lives until its
input ends."""

import ast
import io
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from protoevfl.rows import psi_worker
from protoevfl.rows.psi_worker import (
    ENCRYPT,
    JOB,
    POINT,
    REENCRYPT,
    RESULT,
    _encrypt,
    _reencrypt,
    perform,
    serve,
)

pytest.importorskip("private_set_intersection")
A, B = (12345).to_bytes(32), (67890).to_bytes(32)
IDS = ["anna", "Zoë", "山田 🙂", "", "a" * 5000, "anna "]


def job(operation: bytes, key: bytes, payload: bytes) -> bytes:
    return JOB.pack(operation, key, len(payload)) + payload


def answers(results: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 0
    while at < len(results):
        status, size = RESULT.unpack_from(results, at)
        at += RESULT.size + size
        found.append((status, results[at - size : at]))
    return found


def served(jobs: bytes) -> list[tuple[bytes, bytes]]:
    results = io.BytesIO()
    serve(io.BytesIO(jobs), results)
    return answers(results.getvalue())


def points(joined: bytes) -> list[bytes]:
    return [joined[i : i + POINT] for i in range(0, len(joined), POINT)]


def test_points_keep_the_order_of_ids_and_differ_where_ids_differ() -> None:
    found = points(_encrypt(A, IDS))
    assert found == [_encrypt(A, [one]) for one in IDS]
    assert len(set(found)) == len(IDS)
    assert all(len(point) == POINT for point in found)


def test_equal_ids_meet_under_both_keys_in_either_order() -> None:
    assert _reencrypt(B, _encrypt(A, IDS)) == _reencrypt(A, _encrypt(B, IDS))
    assert points(_encrypt(A, ["x", "y", "x"]))[0] == points(_encrypt(A, ["x", "y", "x"]))[2]


def test_the_same_job_gives_the_same_bytes_and_another_key_gives_others() -> None:
    assert _encrypt(A, IDS) == _encrypt(A, IDS)
    assert not set(points(_encrypt(A, IDS))) & set(points(_encrypt(B, IDS)))


def test_nothing_in_nothing_out() -> None:
    assert _encrypt(A, []) == _reencrypt(A, b"") == b""


def test_a_job_is_one_of_the_two_operations() -> None:
    sent = _encrypt(A, IDS)
    assert perform(ENCRYPT, A, json.dumps(IDS).encode()) == sent
    assert perform(REENCRYPT, B, sent) == _reencrypt(B, sent)


@pytest.mark.parametrize(
    "bad",
    [
        job(REENCRYPT, A, b"\x02" + b"\xff" * 32),
        job(REENCRYPT, A, b"\x02" * 20),
        job(ENCRYPT, A, b"not json"),
        job(ENCRYPT, A, b"[1, 2]"),
        job(ENCRYPT, A, json.dumps(["\ud800"]).encode()),
        job(ENCRYPT, bytes(32), b'["x"]'),
        job(ENCRYPT, b"\xff" * 32, b'["x"]'),
    ],
    ids=[
        "off the curve",
        "half a point",
        "no list",
        "numbers",
        "half a character",
        "key 0",
        "key beyond the order",
    ],
)
def test_a_bad_job_is_answered_and_the_next_one_too(bad: bytes) -> None:
    wrong, right = served(bad + job(ENCRYPT, A, b'["x"]'))
    assert wrong[0] == b"!"
    assert wrong[1].decode()
    assert right == (b"+", _encrypt(A, ["x"]))


def test_an_input_that_ends_within_a_job_ends_the_worker() -> None:
    whole = job(ENCRYPT, A, b'["x"]')
    assert served(b"") == []
    assert served(whole[: JOB.size - 1]) == []
    assert served(whole + whole[:5]) == [(b"+", _encrypt(A, ["x"]))]


def test_as_a_script_it_answers_and_leaves_when_its_input_ends() -> None:
    command = [sys.executable, "-P", psi_worker.__file__]
    done = subprocess.run(
        command, input=job(ENCRYPT, A, json.dumps(IDS).encode()), capture_output=True, timeout=30
    )
    assert done.returncode == 0
    assert done.stderr == b""
    assert answers(done.stdout) == [(b"+", _encrypt(A, IDS))]


def test_as_a_script_it_answers_before_the_next_job_comes() -> None:
    command, pipe = [sys.executable, "-P", psi_worker.__file__], subprocess.PIPE
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=buffered) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(job(ENCRYPT, A, b'["x"]'))
        worker.stdin.flush()
        there, _, _ = select.select([worker.stdout], [], [], 10)
        worker.kill()
    assert there


def test_it_imports_nothing_of_this_package() -> None:
    tree = ast.parse(Path(psi_worker.__file__).read_text(encoding="utf-8"))
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= {
        *sys.stdlib_module_names,
        "private_set_intersection",
    }
