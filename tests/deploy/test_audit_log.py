"""The audit log: any change, drop, move or cut shows; a crash while writing does not."""

import json
import threading
from pathlib import Path

import pytest

from protoevfl.deploy.audit_log import FIRST, AuditLog, TamperedError, verify
from protoevfl.deploy.durable import DiskError
from protoevfl.errors import UserError


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    written = AuditLog(tmp_path / "audit.jsonl")
    for number in range(5):
        written.add(
            "request",
            run="r",
            peer="bank",
            type="Learn",
            bytes=10,
            round=number,
            decision="accepted",
        )
    return written


def test_an_untouched_log_verifies_and_goes_on_after_reopening(log: AuditLog) -> None:
    assert verify(log.path) == (5, log.head)
    again = AuditLog(log.path)
    assert (again.count, again.head) == (5, log.head)
    again.add("reply", round=5)
    assert verify(log.path, head=log.head) == (6, again.head)


@pytest.mark.parametrize("line", [0, 2, 4])
@pytest.mark.parametrize("change", ["edit", "drop", "swap"])
def test_tampering_is_found(log: AuditLog, line: int, change: str) -> None:
    head, lines = log.head, log.path.read_text().splitlines()
    if change == "edit":
        lines[line] = lines[line].replace('"bytes": 10', '"bytes": 11')
    elif change == "drop":
        del lines[line]
    else:
        lines[line], lines[line - 1] = lines[line - 1], lines[line]
    log.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(TamperedError):
        verify(log.path, head=head)


def test_a_rewritten_hash_is_found_by_the_next_line(log: AuditLog) -> None:
    lines = [json.loads(text) for text in log.path.read_text().splitlines()]
    lines[1]["hash"] = "0" * 64
    log.path.write_text("".join(json.dumps(entry, sort_keys=True) + "\n" for entry in lines))
    with pytest.raises(TamperedError, match="line 2"):
        verify(log.path)


def test_a_torn_last_line_is_set_aside(log: AuditLog) -> None:
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + b'{"n": 5, "ev')
    assert AuditLog(log.path).count == 5
    assert log.path.read_bytes() == whole
    assert log.path.with_suffix(".torn").read_bytes() == b'{"n": 5, "ev\n'


def test_fields_are_a_closed_list_and_reasons_are_short(log: AuditLog) -> None:
    with pytest.raises(ValueError, match="ids"):
        log.add("request", ids=[1, 2])
    log.add("refused", reason="x\n" * 1000)
    assert len(json.loads(log.path.read_text().splitlines()[-1])["reason"]) == 200


def test_threads_do_not_break_the_chain(log: AuditLog) -> None:
    threads = [
        threading.Thread(target=lambda: [log.add("request") for _ in range(10)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify(log.path)[0] == 45


def test_a_failed_write_leaves_the_chain_as_it_was(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(DiskError, match="No space left"):
        log.add("request", round=5)
    monkeypatch.undo()
    log.add("request", round=6)
    assert verify(log.path) == (6, log.head)


def test_an_empty_and_a_missing_log(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert verify(tmp_path / "empty") == (0, FIRST)
    with pytest.raises(UserError, match="cannot read"):
        verify(tmp_path / "none")
