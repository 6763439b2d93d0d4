"""Envelopes: what goes in comes out; everything else is refused before it is used. Rounds come once,
in order."""

from dataclasses import replace

import pytest

from protoevfl.deploy.envelope import Envelope, EnvelopeError, from_facts, place, to_facts

ASK = Envelope("request", "run-1", "digest", "bank", "shop", round=5)


@pytest.mark.parametrize("missed", [(), (3, 4), (1, 2, 5, 7, 8)])
def test_round_trip(missed: tuple[int, ...]) -> None:
    asked = replace(ASK, missed=missed, session="s", counter=7, answers="a")
    assert from_facts(to_facts(asked)) == asked


@pytest.mark.parametrize(
    "change",
    [{"kind": "exec"}, {"run": "../../etc"}, {"sender": ""}, {"round": -1}, {"round": True}, {"round": 1.5},
     {"missed": ["x"]}, {"missed": 3}, {"missed": [3]}, {"missed": [[4, 3]]}, {"missed": [[-1, 3]]},
     {"missed": [[0, 2000000000]]}, {"missed": [[1, True]]}, {"missed": [[1, 2, 3]]},
     {"extra": 1}, {"session": "x" * 2000}, {"to": None}, {"counter": "1"}, {"counter": -1}],
)  # fmt: skip
def test_strange_headers_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(EnvelopeError):
        from_facts({**to_facts(ASK), **change})


@pytest.mark.parametrize("facts", [None, 3, [], {}, "x", {"missed": []}])
def test_what_is_no_header_is_refused(facts: object) -> None:
    with pytest.raises(EnvelopeError):
        from_facts(facts)


def test_rounds_come_in_order_once() -> None:
    assert place(ASK, "aa", last=4, answered="zz") == "new"
    assert place(ASK, "aa", last=5, answered="aa") == "repeat"
    for last, answered, word in (
        (5, "bb", "replay"),
        (6, "aa", "replay"),
        (3, "", "not accounted"),
    ):
        with pytest.raises(EnvelopeError, match=word):
            place(ASK, "aa", last, answered)
    assert place(replace(ASK, missed=(3, 4)), "aa", last=2, answered="") == "new"
    with pytest.raises(EnvelopeError):
        place(replace(ASK, missed=(4,)), "aa", last=2, answered="")


def test_a_party_can_come_back_after_any_number_of_rounds() -> None:
    away = tuple(range(2, 500_000))
    facts = to_facts(replace(ASK, round=500_000, missed=away))
    assert len(str(facts)) < 1000
    envelope = from_facts(facts)
    assert envelope.missed == away
    assert place(envelope, "aa", last=1, answered="") == "new"
    with pytest.raises(EnvelopeError, match="not accounted for"):
        place(envelope, "aa", last=0, answered="")
