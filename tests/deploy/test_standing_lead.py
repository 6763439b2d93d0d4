"""The active party's side: what comes back is checked, who fails is left out, what is kept is given
back."""

import itertools
import time
from pathlib import Path

import pytest
import torch

from protoevfl.codec import encode
from protoevfl.deploy.envelope import Envelope
from protoevfl.deploy.seal import Keys, seal
from protoevfl.deploy.standing_lead import (
    BEAT_S,
    FAILURES,
    AwayError,
    OverLimitError,
    Partner,
)
from protoevfl.messages import Embeddings
from tests.deploy.keyring import opened
from tests.deploy.standing import Standing, standing
from tests.deploy.test_site_job import SHARED


@pytest.fixture
def companies(tmp_path: Path) -> Standing:
    return standing(tmp_path)


def shop_of(companies: Standing) -> Partner:
    return companies.lead().partners[1]


def known(partner: Partner, count: int = 1) -> list[str]:
    assert partner.greeting is not None
    return list(itertools.islice(partner.greeting.places, count))


def test_places_not_ids_cross(companies: Standing) -> None:
    partner = shop_of(companies)
    ids = known(partner, 3)
    partner.embeddings(ids, 1.0)
    for _, frame in companies.sent:
        assert not any(f'"{i}"'.encode() in opened(frame).body for i in ids)


def test_the_order_of_a_question_does_not_cross_and_rows_come_back_in_it(
    companies: Standing,
) -> None:
    partner = shop_of(companies)
    ids = known(partner, 4)
    straight, turned = partner.embeddings(ids, 1.0), partner.embeddings(ids[::-1], 1.0)
    assert torch.equal(straight, turned.flip(0))
    first, second = (opened(frame).body for _, frame in companies.sent[-2:])
    assert first == second


def test_a_repeated_customer_is_asked_for_once(companies: Standing) -> None:
    partner = shop_of(companies)
    (one,) = known(partner)
    assert len(partner.embeddings([one, one], 1.0)) == 2
    assert companies.party("shop").log.used() == (1, 1)


def answer_of(companies: Standing, frame: bytes, body: bytes, **changes: object) -> bytes:
    """A well-signed answer of the shop with another content."""
    envelope = opened(frame).envelope
    facts = {"kind": "reply", "run": envelope.run, "spec": envelope.spec, "sender": "shop"}
    header = Envelope(**{**facts, "to": "bank", "round": 1, **changes})  # type: ignore[arg-type]
    bank = Keys.of_kit(companies.folder / "bank", "bank")
    shop = Keys.of_kit(companies.folder / "shop", "shop")
    return seal(shop, header, body, bank.certificate)


@pytest.mark.parametrize("rows", [0, 2])
def test_an_answer_for_another_number_of_rows_is_not_used(companies: Standing, rows: int) -> None:
    from protoevfl.deploy.seal import signed_digest

    partner = shop_of(companies)
    companies.back = lambda name, _: answer_of(
        companies,
        companies.sent[-1][1],
        encode(Embeddings(torch.ones(rows, 4))),
        answers=signed_digest(companies.sent[-1][1]),
    )
    with pytest.raises(AwayError, match="another number of rows"):
        partner.embeddings(known(partner), 1.0)


def test_an_answer_to_an_earlier_request_is_not_used(companies: Standing) -> None:
    partner = shop_of(companies)
    answers: list[bytes] = []

    def replay(name: str, frame: bytes) -> bytes:
        answers.append(frame)
        return answers[0]

    companies.back = replay
    partner.embeddings(known(partner), 1.0)
    with pytest.raises(AwayError, match="another request"):
        partner.embeddings(known(partner), 1.0)


def test_a_replayed_request_is_refused_by_the_party(companies: Standing) -> None:
    partner = shop_of(companies)
    partner.embeddings(known(partner), 1.0)
    frame = companies.sent[-1][1]
    assert opened(companies.party("shop").answer("bank", frame)).envelope.kind == "refusal"
    assert companies.party("shop").log.used() == (1, 1)


def test_after_some_failures_a_party_is_not_asked_until_it_was_greeted(companies: Standing) -> None:
    now = [0.0]
    partner = shop_of(companies)
    partner.clock = lambda: now[0]
    (one,) = known(partner)
    companies.cut("shop")
    for _ in range(FAILURES):
        with pytest.raises(AwayError, match="the line is cut"):
            partner.embeddings([one], 1.0)
    sent = len(companies.sent)
    with pytest.raises(AwayError):
        partner.embeddings([one], 1.0)
    assert not partner.up
    assert len(companies.sent) == sent
    companies.meet = lambda name, frame: frame
    now[0] += BEAT_S + 1
    partner.greeted = 0.0
    partner.beat()
    assert len(partner.embeddings([one], 1.0)) == 1


def test_a_restarted_party_is_greeted_at_once(companies: Standing) -> None:
    partner = shop_of(companies)
    (one,) = known(partner)
    companies.parties.clear()  # the process ends, another one starts
    with pytest.raises(AwayError, match="another session"):
        partner.embeddings([one], 1.0)
    partner.beat()
    assert len(partner.embeddings([one], 1.0)) == 1


def test_what_both_policies_allow_is_kept_until_it_is_called_back(
    tmp_path: Path,
) -> None:
    companies = standing(tmp_path, cache_s=100.0)
    companies.rules("shop", cache_s=10.0)
    now = [0.0]
    partner = shop_of(companies)
    partner.clock = lambda: now[0]
    (one,) = known(partner)
    log = companies.party("shop").log

    def asked() -> int:
        first = partner.embeddings([one], 1.0)
        assert torch.equal(first, partner.embeddings([one], 1.0))
        return log.used()[0]

    assert asked() == 1
    now[0] = 9.0
    assert asked() == 1
    now[0] = 11.0  # older than the smaller of the two
    assert asked() == 2
    (companies.kit("shop").run_folder("train-serve") / "recalled").write_bytes(b"")
    partner.greet()
    assert asked() == 3


def test_nothing_is_sent_over_a_limit_of_the_day(companies: Standing) -> None:
    companies.rules("shop", rows_per_day=2)
    lead = companies.lead()
    ids = known(lead.partners[1], 3)
    sent = len(companies.sent)
    lead.check_limits(ids[:2])
    with pytest.raises(OverLimitError, match="shop allows no more rows today"):
        lead.check_limits(ids)
    assert len(companies.sent) == sent


def test_the_deadline_holds_whoever_sleeps(companies: Standing) -> None:
    lead = companies.lead()
    both = [i for i in known(lead.partners[1], SHARED) if lead.partners[2].has(i)][:1]

    def slow(name: str, frame: bytes) -> bytes:
        if name == "tele":
            time.sleep(2.0)
        return frame

    companies.meet = slow
    start = time.monotonic()
    found, absent = lead.ask({1: both, 2: both}, 0.5)
    assert time.monotonic() - start < 1.9
    assert list(found) == [1]
    assert absent == {2: "no answer within 0.5 s"}
    lead.close()


def test_new_customers_are_found_by_alignment_within_the_limits(companies: Standing) -> None:
    lead = companies.lead()
    partner = lead.partners[1]
    for name in ("bank", "shop"):  # two new customers of both, one of the bank alone
        path = companies.folder / name / "rows.csv"
        head, *lines = path.read_text().splitlines()
        rest = lines[0].split(",", 1)[1]
        people = ["new1", "new2", *(["alone"] if name == "bank" else [])]
        path.write_text("\n".join([head, *lines, *(f'"{p}",{rest}' for p in people)]) + "\n")
    ids = companies.active().source().ids()
    before = len(partner.greeting.places) if partner.greeting else 0
    partner.greet()  # the party's rows changed
    assert partner.align(ids) == 3
    assert partner.has("new1")
    assert not partner.has("alone")
    assert partner.greeting is not None
    assert len(partner.greeting.places) == before + 2
    assert len(partner.embeddings(["new2"], 1.0)) == 1
    # nobody is asked about twice: a second call has nothing to ask
    assert partner.align(ids) == 0
    events = companies.party("shop").log.ledger._read().events
    asked = [e["rows"] for e in events if e["form"] == "ids asked about"]
    assert asked[-1] == 3
    # another process of the active party knows them too
    assert companies.lead().partners[1].has("new1")
