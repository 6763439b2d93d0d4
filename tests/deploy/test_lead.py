"""The active side and the parties' borders, joined by a wire of this process that loses, repeats
and damages frames."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from protoevfl.codec import encode
from protoevfl.core import random as rnd
from protoevfl.deploy import lead as lead_module
from protoevfl.deploy import probe
from protoevfl.deploy.audit_log import AuditLog, verify
from protoevfl.deploy.checkpoints import CheckpointStore
from protoevfl.deploy.envelope import Envelope
from protoevfl.deploy.host import PartyHost
from protoevfl.deploy.lead import Lead, LostError, PartyRefusedError
from protoevfl.deploy.local_party import LocalParty
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.federation.lockstep import PartyLostError
from protoevfl.federation.party import Party
from protoevfl.messages import Embeddings, Learn
from protoevfl.method import PartyError
from tests.deploy.keyring import header, keys, opened, said, sealed
from tests.faults.federation import expected
from tests.tiny import finish

NAMES = ("bank", "shop", "tele")
SPEC = JobSpec(
    "run-1",
    NAMES,
    method="probe",
    settings={"rounds": 6, "rows": 3, "width": 2},
    rounds=20,
    down=("Learn", "Embed"),
    up=("Embeddings", "Learned"),
    deadline_s=0.2,
    wait_s=0.2,
)


class CrashError(Exception):
    """The active side's process dies here."""


@dataclass
class World:
    """Three parties and the wire between them; `fault` may raise, or change a frame on its way in
    or out."""

    folder: Path
    spec: JobSpec = SPEC
    fault: Callable[[str, bytes, str], bytes] = lambda name, frame, way: frame
    hosts: dict[str, PartyHost] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)  # parties that kept what they learnt

    def host(self, name: str) -> PartyHost:
        if name not in self.hosts:
            self.hosts[name] = self.new_host(name)
        return self.hosts[name]

    def new_host(self, name: str) -> PartyHost:
        method = probe.make(self.spec.settings)
        key = rnd.key(self.spec.seed, "party", NAMES.index(name))

        def make() -> LocalParty:
            party = Party(method, probe.table(name), key)
            return LocalParty(party, {"classes": 2}, self.spec.max_bytes)

        store, log = CheckpointStore(self.folder / name), AuditLog(self.folder / f"{name}.jsonl")
        keep = lambda state: self.kept.append(name)  # noqa: E731
        return PartyHost(make, keys(name), self.spec, Policy("bank"), store, log, keep=keep)

    def send(self, name: str, frame: bytes, seconds: float) -> bytes:
        answer = self.host(name).answer(self.fault(name, frame, "in"), "bank")
        return self.fault(name, answer, "out")

    def lead(self, **changes: Any) -> Lead:
        journal, log = (
            CheckpointStore(self.folder / "journal", keep=None),
            AuditLog(self.folder / "lead.jsonl"),
        )
        return Lead(self.spec, keys("bank"), self.send, journal, log, {"classes": 2}, **changes)

    def run(self, **changes: Any) -> Tensor:
        engine = self.lead(**changes)
        try:
            return self.rounds(engine)
        finally:
            engine.pool.shutdown()  # a dead world writes no more: the next one uses the same folder

    def rounds(self, engine: Lead) -> Tensor:
        method, owner = probe.make(self.spec.settings), probe.owner(3, self.spec.seed)
        engine.hello()
        engine.check_sources()
        loss = "skip" if self.spec.on_party_loss == "skip" else "abort"
        finish([method.train(owner)], engine, loss)
        (result,) = finish([method.predict(owner, owner.parties)], engine, loss)
        return result  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lead_module, "RETRY_S", 0.01)
    monkeypatch.setattr(lead_module, "MISSED_S", 0.05)


def test_the_result_is_that_of_the_in_process_engine(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert torch.equal(world.run(), expected(SPEC))
    assert verify(tmp_path / "lead.jsonl")[0] > verify(tmp_path / "shop.jsonl")[0] > 14
    text = (tmp_path / "shop.jsonl").read_text()
    assert '"type": "Learned"' in text


@pytest.mark.parametrize("seed", range(4))
def test_a_wire_that_loses_requests_and_answers_changes_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)

    def lossy(name: str, frame: bytes, way: str) -> bytes:
        if name != "bank" and rng.random() < 0.3:
            raise LostError("cut")
        return frame

    world = World(tmp_path, replace(SPEC, wait_s=20.0), lossy)
    assert torch.equal(world.run(), expected(SPEC))
    assert (
        "repeated" in (tmp_path / "shop.jsonl").read_text() + (tmp_path / "tele.jsonl").read_text()
    )


@pytest.mark.parametrize("crash_at", range(0, 40, 3))
def test_a_crash_anywhere_is_resumed_bit_for_bit(tmp_path: Path, crash_at: int) -> None:
    count = 0

    def crash(name: str, frame: bytes, way: str) -> bytes:
        nonlocal count
        count += 1
        if count == crash_at + 1:
            raise CrashError
        return frame

    with suppress(CrashError):
        World(tmp_path, fault=crash).run()
    assert torch.equal(World(tmp_path).run(), expected(SPEC))  # new hosts: every process died


def test_an_unreachable_party_stops_the_run_and_is_named(tmp_path: Path) -> None:
    def gone(name: str, frame: bytes, way: str) -> bytes:
        if name == "shop" and header(frame).round == 3:
            raise LostError("connection refused")
        return frame

    with pytest.raises(
        PartyLostError, match=r"party shop did not answer in round 3: connection refused"
    ):
        World(tmp_path, replace(SPEC, on_party_loss="abort"), gone).run()


def test_skip_goes_on_without_the_party_and_takes_it_back(tmp_path: Path) -> None:
    spec = replace(SPEC, on_party_loss="skip")

    def away(name: str, frame: bytes, way: str) -> bytes:
        if name == "shop" and header(frame).round in (2, 3):
            raise LostError("away")
        return frame

    result = World(tmp_path, spec, away).run()
    assert result[1, 1] == result[2, 1] == 0
    assert result[0, 1] != 0
    assert result[3, 1] != 0
    assert torch.equal(World(tmp_path, spec).run(), result)  # the journal remembers who was away


def test_the_active_party_cannot_be_skipped(tmp_path: Path) -> None:
    def away(name: str, frame: bytes, way: str) -> bytes:
        if name == "bank":
            raise LostError("away")
        return frame

    with pytest.raises(PartyLostError, match="bank"):
        World(tmp_path, replace(SPEC, on_party_loss="skip"), away).run()


def test_a_party_known_to_be_away_is_not_asked(tmp_path: Path) -> None:
    spec = replace(SPEC, on_party_loss="skip")
    world = World(tmp_path, spec)
    result = world.run(absent=frozenset({"tele"}))
    assert not result[:, 2].any()
    assert "tele" not in world.hosts


def _answer_with(body: bytes) -> Callable[[str, bytes, str], bytes]:
    def change(name: str, frame: bytes, way: str) -> bytes:
        envelope = header(frame)
        return (
            sealed(envelope, body)
            if (name, way, envelope.kind) == ("shop", "out", "reply")
            else frame
        )

    return change


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (encode(Embeddings(torch.full((3, 2), float("nan")))), "NaN"),
        (
            encode(Learn(0, torch.zeros(2, 1), torch.ones(2), torch.zeros(2))),
            "Learn was not agreed on",
        ),
        (b"\0" * 100, "not"),
        (b"", "not a message"),
    ],
)
def test_unusable_answers_stop_the_run_and_name_the_party(
    tmp_path: Path, body: bytes, word: str
) -> None:
    with pytest.raises(PartyRefusedError, match=f"party shop .*{word}"):
        World(tmp_path, fault=_answer_with(body)).run()
    assert '"decision": "refused"' in (tmp_path / "lead.jsonl").read_text()


def test_an_oversized_answer_is_refused(tmp_path: Path) -> None:
    big = encode(Embeddings(torch.zeros(200, 200)))
    with pytest.raises(PartyRefusedError, match="over the limit"):
        World(tmp_path, replace(SPEC, max_bytes=10_000), _answer_with(big)).run()


def test_an_answer_of_an_earlier_round_is_refused(tmp_path: Path) -> None:
    kept: list[bytes] = []

    def replay(name: str, frame: bytes, way: str) -> bytes:
        if (name, way) == ("shop", "out") and header(frame).kind == "reply":
            kept.append(frame)
            return kept[0]
        return frame

    with pytest.raises(PartyLostError, match=r"party shop .*replayed or reordered on its way"):
        World(tmp_path, fault=replay).run()
    assert '"not the answer to this request"' in (tmp_path / "lead.jsonl").read_text()


def test_a_wire_that_repeats_and_delays_frames_changes_nothing(tmp_path: Path) -> None:
    """Every request arrives twice; now and then an old answer comes first."""
    rng, old = random.Random(3), dict[str, bytes]()
    world = World(tmp_path, replace(SPEC, wait_s=20.0))

    def strange(name: str, frame: bytes, way: str) -> bytes:
        if way == "in":
            assert world.host(name).answer(frame, "bank") == world.host(name).answer(frame, "bank")
            return frame
        before, old[name] = old.get(name, frame), frame
        return before if rng.random() < 0.3 else frame

    world.fault = strange
    assert torch.equal(world.run(), expected(SPEC))


def test_a_party_that_answers_in_place_of_another_is_noticed(tmp_path: Path) -> None:
    def forge(name: str, frame: bytes, way: str) -> bytes:
        envelope = header(frame)
        if (name, way, envelope.kind) != ("shop", "out", "reply"):
            return frame
        # tele signs what shop would have to say
        return sealed(replace(envelope, sender="tele"), opened(frame).body)

    with pytest.raises(PartyRefusedError, match="tele answered in place of shop"):
        World(tmp_path, fault=forge).run()


def test_a_party_cannot_pass_anothers_answer_off_as_its_own(tmp_path: Path) -> None:
    """tele takes shop's encrypted answer and signs it itself: the names are inside the encryption
    too."""
    import json

    from protoevfl.deploy import seal

    answers: list[bytes] = []

    def steal(name: str, frame: bytes, way: str) -> bytes:
        envelope = header(frame)
        if way == "out" and envelope.kind == "reply" and name == "shop":
            answers.append(frame)
        if way != "out" or envelope.kind != "reply" or name != "tele" or not answers:
            return frame
        outer, body = seal._split(answers[0], 1 << 20)
        facts = json.loads(outer["signed"])
        facts["envelope"] = seal.to_facts(envelope)
        facts["certificate"] = keys("tele").certificate.decode()
        text = json.dumps(facts, sort_keys=True)
        made = keys("tele").private.sign(text.encode(), seal._pss(), seal._sha256())
        signature = seal.base64.b64encode(made).decode()
        head = json.dumps({"signed": text, "signature": signature}).encode()
        return seal.MAGIC + len(head).to_bytes(4, "big") + head + body

    world = World(tmp_path, fault=steal)
    with pytest.raises(PartyRefusedError, match=r"in the name of party tele .* not encrypted for"):
        world.run()


def _ask(world: World, caller: str = "bank", **changes: Any) -> str:
    host = world.host("shop")
    made = Envelope("request", "run-1", SPEC.digest(), "bank", "shop", 1)
    made = replace(made, session=host.session, counter=host.counter + 1)
    body = encode(Learn(0, torch.zeros(2, 1), torch.ones(2), torch.zeros(2)))
    return said(host.answer(sealed(replace(made, **changes), body), caller))


def test_a_party_answers_its_active_party_only(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert "tele may not ask" in _ask(world, caller="tele")
    assert "may not ask" in _ask(world, caller="tele", sender="tele")
    assert "may not ask" in _ask(world, sender="tele")
    assert "addressed to tele" in _ask(world, to="tele")
    assert "run other" in _ask(world, run="other")
    assert "specification differs" in _ask(world, spec="x")
    assert "not accounted for" in _ask(world, round=3)
    assert "beyond the 20" in _ask(world, round=21, missed=((1, 20),))
    assert _ask(world).startswith("reply")
    assert _ask(world).startswith("reply")  # again: from the checkpoint
    assert world.host("shop").last == 1
    assert (tmp_path / "shop.jsonl").read_text().count('"refused"') == 2 * 8


def test_types_outside_the_policy_are_refused_both_ways(tmp_path: Path) -> None:
    world = World(tmp_path)
    host = world.host("shop")
    host.policy = replace(host.policy, receive=("Embed",))
    assert "refused by policy" in _ask(world)
    host.policy = replace(Policy("bank"), send=("Embeddings",))
    assert "it would send Learned" in _ask(world)


def test_a_party_that_fails_is_as_before_and_tells_no_detail(tmp_path: Path) -> None:
    world = World(tmp_path)
    host = world.host("shop")
    party = host.party
    before = {n: t.clone() for n, t in party.state().items()}

    def fail(request: bytes, name: str = "") -> bytes:
        party.restore({"memory.x": torch.tensor([7.0])})
        raise ValueError("row 17 of customers.csv")

    party.handle_bytes = fail  # type: ignore[method-assign]
    said = _ask(world)
    assert "ValueError" in said
    assert "customers" not in said
    assert party.state() == before
    assert host.last == 0


def test_a_changed_job_under_the_same_name_is_refused(tmp_path: Path) -> None:
    World(tmp_path).run()
    with pytest.raises(UserError, match="another specification"):
        World(tmp_path, replace(SPEC, seed=1)).run()


def test_more_rounds_than_agreed_are_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="more than the 3 rounds"):
        World(tmp_path, replace(SPEC, rounds=3)).run()


def test_at_the_end_every_party_that_is_there_keeps_its_part(tmp_path: Path) -> None:
    def cut(name: str, frame: bytes, way: str) -> bytes:
        if name == "tele" and way == "in" and header(frame).kind == "finish":
            raise LostError("connection refused")
        return frame

    world = World(tmp_path, fault=cut)
    engine = world.lead()
    world.rounds(engine)
    engine.finish()
    engine.close()
    assert sorted(world.kept) == ["bank", "shop"]  # tele does so when it is next asked
    engine = world.lead(absent=frozenset({"shop"}))
    engine.finish()
    engine.close()
    assert sorted(world.kept) == ["bank", "bank", "shop"]


def test_a_party_that_a_round_does_not_concern_is_told_so_in_its_next_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    engine = world.lead()

    def ask(*parties: int) -> set[int]:
        message = Learn(engine.round, torch.zeros(2, 1), torch.ones(2), torch.zeros(2))
        replies = engine.exchange({(0, m): message for m in parties})
        return {m for (_, m), reply in replies.items() if not isinstance(reply, PartyError)}

    assert ask(0, 1, 2) == {0, 1, 2}
    assert ask(0, 1) == {0, 1}
    assert ask(0, 2) == {0, 2}
    assert ask(0, 1, 2) == {0, 1, 2}
    engine.close()


# ------------------------------------------------------------ damage and its way back (threats D7 to D11)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def stopped_after(folder: Path, number: int) -> None:
    """A run whose every process dies after this round."""

    def crash(name: str, frame: bytes, way: str) -> bytes:
        if header(frame).round > number:
            raise CrashError
        return frame

    with suppress(CrashError):
        World(folder, fault=crash).run()


@pytest.mark.parametrize("lost", [(4,), (3, 4), (2, 3, 4)])
def test_damaged_checkpoints_are_named_and_their_rounds_answered_again(
    tmp_path: Path, lost: tuple[int, ...]
) -> None:
    stopped_after(tmp_path, 4)
    for number in lost:
        flip(CheckpointStore(tmp_path / "shop").path(number))
    assert torch.equal(World(tmp_path).run(), expected(SPEC))
    named = ", ".join(map(str, lost))
    assert f"checkpoint of round {named} is damaged" in (tmp_path / "shop.jsonl").read_text()


def test_a_party_that_lost_all_its_checkpoints_begins_again(tmp_path: Path) -> None:
    stopped_after(tmp_path, 4)
    for path in (tmp_path / "shop").iterdir():
        path.unlink()
    assert torch.equal(World(tmp_path).run(), expected(SPEC))


@pytest.mark.parametrize("lost", [(4,), (3, 4), (2, 3, 4)])
def test_the_end_of_the_journal_is_asked_for_again(tmp_path: Path, lost: tuple[int, ...]) -> None:
    stopped_after(tmp_path, 4)
    journal = CheckpointStore(tmp_path / "journal", keep=None)
    for number in lost[:-1]:
        journal.path(number).unlink()
    flip(journal.path(lost[-1]))
    assert torch.equal(World(tmp_path).run(), expected(SPEC))


def test_a_journal_that_is_lost_stops_the_run_with_the_way_back(tmp_path: Path) -> None:
    stopped_after(tmp_path, 5)
    (tmp_path / "journal").rename(tmp_path / "copy")
    with pytest.raises(
        UserError,
        match=r"journal of run run-1 at bank has no whole round 1, while party \w+ has answered up "
        r"to round 5: restore .*journal from a copy and resume",
    ):
        World(tmp_path).run()
    (tmp_path / "copy").rename(tmp_path / "journal")  # the way back
    assert torch.equal(World(tmp_path).run(), expected(SPEC))


def test_a_changed_file_of_the_active_party_stops_the_run_and_is_named(tmp_path: Path) -> None:
    World(tmp_path).run(sources={"data file": "aa"})
    with pytest.raises(UserError, match="the data file of bank changed since run run-1 began"):
        World(tmp_path).run(sources={"data file": "bb"})
    assert torch.equal(World(tmp_path).run(sources={"data file": "aa"}), expected(SPEC))


def test_a_changed_file_of_a_party_stops_the_run_and_names_it(tmp_path: Path) -> None:
    stopped_after(tmp_path, 2)

    def world(digest: str) -> World:
        made = World(tmp_path)
        make = made.host("shop").make
        made.host("shop").make = lambda: replace(make(), sources={"data file": digest})  # type: ignore[type-var]
        return made

    for path in (tmp_path / "shop").iterdir():  # as if it had begun with a file
        path.unlink()
    with suppress(CrashError):
        world("aa").run()
    for path in (tmp_path / "journal").iterdir():
        if path.name > "round-000005":
            path.unlink()
    with pytest.raises(PartyRefusedError, match="the data file of shop changed since run run-1"):
        world("bb").run()
    assert torch.equal(world("aa").run(), expected(SPEC))


@pytest.mark.parametrize("rows", [0, 2, 4])
def test_a_party_that_sends_another_number_of_rows_is_named(tmp_path: Path, rows: int) -> None:
    body = encode(Embeddings(torch.zeros(rows, 2)))
    with pytest.raises(PartyRefusedError, match=f"party shop .* {rows} rows, 3 were asked for"):
        World(tmp_path, fault=_answer_with(body)).run(rows=lambda party, request: 3)


def test_rows_without_numbers_name_the_party(tmp_path: Path) -> None:
    body = encode(Embeddings(torch.zeros(3, 0)))
    with pytest.raises(PartyRefusedError, match=r"party shop .* without a number"):
        World(tmp_path, fault=_answer_with(body)).run()
