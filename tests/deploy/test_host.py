"""A party's border: what it lets in and out, what it answers again, what it keeps to itself when
something breaks."""

import json
import logging
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.codec import decode, encode
from protoevfl.core import random as rnd
from protoevfl.deploy import probe
from protoevfl.deploy.audit_log import AuditLog, verify
from protoevfl.deploy.checkpoints import CheckpointStore
from protoevfl.deploy.durable import DiskError
from protoevfl.deploy.envelope import Envelope, EnvelopeError
from protoevfl.deploy.host import PartyHost, RefusedError, message_type, public, refusal
from protoevfl.deploy.local_party import LocalParty
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.seal import seal, unseal
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.federation.party import Party
from protoevfl.messages import Embed, Learn, Message, MessageError, WarmUp
from protoevfl.rows.align_wire import AlignmentError
from tests.deploy.keyring import header as header_of
from tests.deploy.keyring import keys

SPEC = JobSpec(
    "run-1",
    ("bank", "shop"),
    method="probe",
    settings={"rounds": 4, "rows": 3, "width": 2},
    rounds=9,
    down=("Learn", "Embed"),
    up=("Embeddings", "Learned"),
)


def learn(value: float = 0.0) -> Learn:
    return Learn(0, torch.zeros(2, 1), torch.ones(2), torch.full((2,), value))


@dataclass
class Watched(LocalParty):
    """The party of a probe that counts how often it is asked."""

    asked: list[bytes] = field(default_factory=list)

    def handle_bytes(self, request: bytes, name: str = "") -> bytes:
        self.asked.append(request)
        return super().handle_bytes(request, name)


@dataclass
class Shop:
    """A party's folder, the host of the process that works in it, and its party."""

    folder: Path
    spec: JobSpec = SPEC
    policy: Policy = field(default_factory=lambda: Policy("bank"))
    aligner: Any = None
    keep: Any = None

    def __post_init__(self) -> None:
        key = rnd.key(self.spec.seed, "party", 1)
        inner = Party(probe.make(self.spec.settings), probe.table("shop"), key)
        self.party = Watched(inner, {"classes": 2}, self.spec.max_bytes)
        store, log = (
            CheckpointStore(self.folder / "checkpoints"),
            AuditLog(self.folder / "audit.jsonl"),
        )
        self.host = PartyHost(
            lambda: self.party,
            keys("shop"),
            self.spec,
            self.policy,
            store,
            log,
            self.aligner,
            self.keep,
        )

    def frame(
        self, message: Message | bytes, number: int = 1, kind: str = "request", **changes: Any
    ) -> bytes:
        """A frame of the bank; `counter` goes on from the party's own."""
        header = Envelope(kind, self.spec.run, self.spec.digest(), "bank", "shop", number)
        header = replace(header, session=self.host.session, counter=self.host.counter + 1)
        body = message if isinstance(message, bytes) else encode(message)
        header = replace(header, **changes)
        return seal(keys(header.sender), header, body, keys("shop").certificate)

    def open(self, frame: bytes) -> tuple[Envelope, bytes]:
        opened = unseal(keys("bank"), frame)
        assert opened.envelope.sender == "shop"
        return opened.envelope, opened.body

    def ask(
        self, message: Message | bytes, number: int = 1, kind: str = "request"
    ) -> tuple[Envelope, bytes]:
        return self.open(self.host.answer(self.frame(message, number, kind), "bank"))

    def refused(self, message: Message | bytes, number: int = 1, kind: str = "request") -> str:
        envelope, body = self.ask(message, number, kind)
        assert envelope.kind == "refusal"
        return body.decode()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "audit.jsonl").read_text().splitlines()]


# ------------------------------------------------------------ answered once


def test_a_round_that_comes_again_is_answered_without_asking_the_party(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    frame = shop.frame(learn())
    first = shop.host.answer(frame, "bank")
    body = shop.open(first)[1]
    assert shop.host.answer(frame, "bank") == first  # the same frame twice
    assert shop.ask(learn())[1] == body  # asked again, because the answer was lost
    assert len(shop.party.asked) == 1
    after = Shop(tmp_path)  # a new process after a crash
    assert after.ask(learn())[1] == body
    assert after.party.asked == []
    assert [line["decision"] for line in after.lines() if line["event"] == "reply"] == [
        "sent",
        "repeated",
        "repeated",
    ]


def test_the_same_round_with_another_request_is_a_replay(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.ask(learn())
    assert "replay refused" in shop.refused(learn(1.0))
    assert len(shop.party.asked) == 1


def test_a_request_sent_many_times_at_once_is_worked_on_once(tmp_path: Path) -> None:
    shop, answers = Shop(tmp_path), list[bytes]()
    frame, together = shop.frame(learn()), threading.Barrier(6)

    def call() -> None:
        together.wait()
        answers.append(shop.host.answer(frame, "bank"))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert len(set(answers)) == 1
    assert len(shop.party.asked) == 1
    verify(tmp_path / "audit.jsonl")


def test_a_new_process_goes_on_as_the_old_one_would_have(tmp_path: Path) -> None:
    straight, broken = Shop(tmp_path / "straight"), Shop(tmp_path / "broken")
    for shop in (straight, broken):
        shop.ask(learn(), 1)
    again = Shop(tmp_path / "broken")
    assert again.ask(learn(0.5), 2)[1] == straight.ask(learn(0.5), 2)[1]
    assert "resume" in [line["event"] for line in again.lines()]
    assert "resume" not in [line["event"] for line in straight.lines()]


def test_the_answer_is_on_disk_with_the_log_that_led_to_it(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    body = shop.ask(learn())[1]
    found = CheckpointStore(tmp_path / "checkpoints").latest()
    assert found is not None
    assert found.round == 1
    assert found.tensors["reply!"].numpy().tobytes() == body
    assert found.header["spec"] == SPEC.digest()
    verify(tmp_path / "audit.jsonl", str(found.header["audit"]))


# ------------------------------------------------------------ what is let in and out


def test_a_type_the_policy_takes_but_the_job_did_not_announce_is_not_answered(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    assert "WarmUp" in shop.policy.receive
    assert shop.refused(WarmUp()) == "message type WarmUp is not allowed in this run"
    assert shop.party.asked == []


def test_an_answer_of_a_type_the_job_did_not_announce_does_not_leave(tmp_path: Path) -> None:
    shop = Shop(tmp_path, replace(SPEC, up=("Embeddings",)))
    before = shop.party.state()
    assert shop.refused(learn()) == "message type Learned may not leave this party"
    assert shop.party.state() == before
    assert shop.host.last == 0
    assert shop.ask(Embed("query"))[0].kind == "reply"  # the round is still free


def test_an_answer_over_the_limit_does_not_leave(tmp_path: Path) -> None:
    shop = Shop(tmp_path, replace(SPEC, settings={"rows": 1000, "width": 10}, max_bytes=4000))
    assert "over the limit of 4,000" in shop.refused(Embed("query"))
    assert CheckpointStore(tmp_path / "checkpoints").rounds() == [0]


def test_every_foreign_caller_is_refused_before_the_party_is_made(tmp_path: Path) -> None:
    shop, made = Shop(tmp_path), list[int]()
    shop.host.make = lambda: made.append(1) or shop.party  # type: ignore[func-returns-value]
    for caller in ("tele", "shop", "server"):  # according to the hub
        assert b"may not ask" in shop.open(shop.host.answer(shop.frame(learn()), caller))[1]
    changes: list[dict[str, Any]] = [
        {"run": "run-2"},
        {"spec": "0" * 64},
        {"to": "tele"},
    ]
    for change in changes:
        answer = unseal(keys("bank"), shop.host.answer(shop.frame(learn(), **change), "bank"))
        assert answer.envelope.kind == "refusal"
    assert not made
    assert not CheckpointStore(tmp_path / "checkpoints").rounds()
    assert {line["peer"] for line in shop.lines()} == {"tele", "shop", "server", "bank"}


@pytest.mark.parametrize(
    "frame", [b"", b"GET / HTTP/1.1", b"PEV2\0\0\0\2{}", b"PEV2\xff\xff\xff\xff"]
)
def test_what_is_no_frame_is_refused_and_logged(tmp_path: Path, frame: bytes) -> None:
    shop = Shop(tmp_path)
    envelope, _ = shop.open(shop.host.answer(frame, "bank"))
    assert (envelope.kind, envelope.to, envelope.round, envelope.answers) == (
        "refusal",
        "bank",
        0,
        "",
    )
    (line,) = shop.lines()
    assert (line["decision"], line["bytes"]) == ("refused", len(frame))


# ------------------------------------------------------------ the hub is not believed (threats D4)


def test_a_hub_that_forges_the_origin_gets_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    header = Envelope("request", SPEC.run, SPEC.digest(), "bank", "shop", 1, shop.host.session, 1)
    receiver = keys("shop").certificate
    forged = {
        "the hub's own certificate": seal(keys("hub"), header, encode(learn()), receiver),
        "another party's": seal(keys("tele"), header, encode(learn()), receiver),
        "another authority's": seal(keys("bank", "crooks"), header, encode(learn()), receiver),
        "an expired one": seal(keys("bank", days=-1), header, encode(learn()), receiver),
        "in its own name": seal(
            keys("tele"), replace(header, sender="tele"), encode(learn()), receiver
        ),
        "not encrypted": _in_clear(header, encode(learn())),
    }
    for what, frame in forged.items():  # the hub says that it comes from the bank
        answer = shop.host.answer(frame, "bank")
        assert header_of(answer).kind == "refusal", what
        assert len(answer) < 5000
    assert shop.party.asked == []
    assert {line["decision"] for line in shop.lines()} == {"refused"}


def _in_clear(header: Envelope, body: bytes) -> bytes:
    """Signed by the bank's key, but readable by anybody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("protoevfl.deploy.seal.OPEN", ("request",))
        return seal(keys("bank"), header, body)


def test_an_answer_is_read_by_the_active_party_alone(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    answer = shop.host.answer(shop.frame(learn()), "bank")
    assert shop.host.reply not in answer
    for name in ("hub", "tele", "shop"):
        with pytest.raises(EnvelopeError, match=r"addressed to bank|not encrypted for"):
            unseal(replace(keys(name), name="bank"), answer)
    assert shop.open(answer)[1] == shop.host.reply


def test_a_recorded_frame_is_of_no_use_later(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    first, second = shop.frame(learn()), None
    shop.host.answer(first, "bank")
    second = shop.frame(learn(0.5), 2)
    shop.host.answer(second, "bank")
    for host in (shop.host, Shop(tmp_path).host):  # this process and the next one
        answer = host.answer(first, "bank")
        assert b"replay refused" in shop.open(answer)[1]
    assert len(shop.party.asked) == 2


@pytest.mark.parametrize("field", ["run", "spec", "to", "round", "session", "counter", "kind"])
def test_nothing_in_a_signed_header_can_be_changed(tmp_path: Path, field: str) -> None:
    shop = Shop(tmp_path)
    frame = shop.frame(learn())
    other = {"round": 2, "counter": 9, "kind": "finish"}.get(field, "x" * 8)
    length = int.from_bytes(frame[4:8], "big")
    header = json.loads(frame[8 : 8 + length])
    signed = json.loads(header["signed"])
    signed["envelope"][field] = other
    text = json.dumps({**header, "signed": json.dumps(signed, sort_keys=True)}).encode()
    changed = frame[:4] + len(text).to_bytes(4, "big") + text + frame[8 + length :]
    assert b"the signature is not that of bank" in shop.open(shop.host.answer(changed, "bank"))[1]
    assert shop.party.asked == []


# ------------------------------------------------------------ failures


def test_a_disk_that_fails_while_keeping_leaves_the_party_as_before_and_names_no_path(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    shop.ask(learn(), 1)
    before, kept = shop.party.state(), shop.host.reply
    block = tmp_path / "checkpoints" / "round-000002.safetensors"
    block.mkdir()
    said = shop.refused(learn(0.5), 2)
    assert said.startswith("it cannot write to its disk")
    assert str(tmp_path) not in said
    assert len(shop.party.asked) == 2  # it did work
    assert shop.party.state() == before
    assert (shop.host.last, shop.host.reply) == (1, kept)
    block.rmdir()
    straight = Shop(tmp_path / "straight")
    straight.ask(learn(), 1)
    assert shop.ask(learn(0.5), 2)[1] == straight.ask(learn(0.5), 2)[1]


def test_saying_no_needs_no_disk(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    (tmp_path / "audit.jsonl").mkdir()
    assert "cannot write its audit log" in shop.refused(learn())
    answer = shop.open(shop.host.answer(shop.frame(learn()), "tele"))
    assert answer[1] == b"tele may not ask this party (as bank)"
    assert shop.party.asked == []


def test_a_reason_of_any_length_fits_the_frame() -> None:
    opened = unseal(keys("bank"), refusal(keys("shop"), SPEC, "bank", "ü" * 100_000))
    assert opened.body.decode() == "ü" * 900


@pytest.mark.parametrize(
    "error", [EnvelopeError("gap"), RefusedError("too late"), MessageError("width is 3")]
)
def test_own_refusals_are_told_in_full(error: Exception) -> None:
    assert public(error) == str(error)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            UserError("/data/customers.csv has no column 'income'"),
            "the party failed (UserError); its own log says more",
        ),
        (
            AlignmentError("the alignment in /kit is damaged"),
            "the party failed (AlignmentError); its own log says more",
        ),
        (
            DiskError("cannot write /kit/runs", "it cannot write to its disk"),
            "it cannot write to its disk",
        ),
        (KeyError("4711"), "the party failed (KeyError); its own log says more"),
    ],
)
def test_other_errors_are_told_by_their_kind_and_logged_at_home(
    error: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert public(error) == told
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[1] is error


# ------------------------------------------------------------ alignment


@dataclass
class Side:
    """Alignment that says what it was asked."""

    digest: str = "d1"
    error: Exception | None = None

    def handle_bytes(self, step: int, request: bytes) -> bytes:
        if self.error is not None:
            raise self.error
        return b"step %d: %s" % (step, request)


def test_alignment_is_answered_until_the_run_begins(tmp_path: Path) -> None:
    shop = Shop(tmp_path, aligner=Side())
    envelope, body = shop.ask(b"ids", 11, "align")
    assert (envelope.kind, envelope.round, body) == ("align", 11, b"step 11: ids")
    assert [line["type"] for line in shop.lines()] == ["Alignment11"] * 2
    shop.ask(learn())
    assert "no alignment is due" in shop.refused(b"ids", 11, "align")
    assert "no alignment is due" in Shop(tmp_path, aligner=Side()).refused(b"ids", 11, "align")


def test_a_party_without_rows_of_its_own_does_not_align(tmp_path: Path) -> None:
    assert "no alignment is due" in Shop(tmp_path).refused(b"ids", 11, "align")


def test_why_alignment_failed_is_told_and_other_errors_are_not(tmp_path: Path) -> None:
    told = Shop(tmp_path, aligner=Side(error=AlignmentError("only 3 rows in common")))
    assert told.refused(b"", 12, "align") == "only 3 rows in common"
    kept = Shop(tmp_path, aligner=Side(error=UserError("/data/shop.csv does not exist")))
    assert "shop.csv" not in kept.refused(b"", 12, "align")


def test_hello_tells_the_last_round_the_head_of_the_log_and_the_alignment(tmp_path: Path) -> None:
    shop = Shop(tmp_path, aligner=Side())
    for number in (1, 2):
        shop.ask(learn(), number)
    again = Shop(tmp_path, aligner=Side())
    envelope, body = again.ask(b"", 0, "hello")
    assert envelope.kind == "welcome"
    facts = {"last": 2, "head": again.host.log.head, "aligned": "d1"}
    assert json.loads(body) == {**facts, "session": again.host.session, "counter": 0}
    assert again.party.asked == []
    other = Shop(tmp_path, replace(SPEC, seed=1))
    assert "begun with another specification" in other.refused(b"", 0, "hello")


# ------------------------------------------------------------ the type of a message


@pytest.mark.parametrize("message", [learn(), Embed("query"), WarmUp()])
def test_the_type_is_read_without_the_arrays(message: Message) -> None:
    data = encode(message)
    head = data[: 8 + int.from_bytes(data[:8], "little")]
    assert message_type(head) == message_type(data) == type(message).__name__


def header(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 7,
        b"\0" * 8,
        b"\xff" * 8 + b"{}",
        header("{}"),
        header("[1]"),
        header('{"__metadata__": 3}'),
        header('{"__metadata__": {"type": 3}}'),
        header('{"__metadata__": {"type": "../x"}}'),
        header('{"__metadata__": {"type": "' + "a" * 65 + '"}}'),
        header("[" * 60_000),
        header('{"__metadata__": {"type": "Learn"}}')[:-1],
        b"\2" + b"\0" * 7 + b"\xff\xfe",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_no_message_has_no_type(data: bytes) -> None:
    with pytest.raises(MessageError, match="not a message"):
        message_type(data)


@given(st.binary(max_size=60))
def test_any_bytes_have_a_type_or_are_refused(data: bytes) -> None:
    try:
        assert message_type(data).isidentifier()
    except MessageError:
        with pytest.raises(MessageError):
            decode(data)


# ------------------------------------------------------------ the end of training


def test_at_the_end_a_party_keeps_itself_as_its_last_answer_left_it(tmp_path: Path) -> None:
    kept: list[dict[str, Any]] = []
    shop = Shop(tmp_path, keep=kept.append)
    for number in (1, 2):
        shop.ask(learn(), number)
    again = Shop(tmp_path, keep=kept.append)  # another process than the one that answered
    for host in (shop, again):
        envelope, body = host.ask(b"", 2, "finish")
        assert (envelope.kind, envelope.sender, body) == ("finish", "shop", b"")
    assert again.party.asked == []
    for state in kept:
        assert set(state) == set(shop.party.state())
        assert all(torch.equal(tensor, shop.party.state()[name]) for name, tensor in state.items())
    assert shop.lines()[-1]["event"] == "finished"


def test_a_party_that_was_never_asked_has_nothing_to_keep(tmp_path: Path) -> None:
    kept: list[Any] = []
    assert "nothing to finish" in Shop(tmp_path, keep=kept.append).refused(b"", 0, "finish")
    assert kept == []
