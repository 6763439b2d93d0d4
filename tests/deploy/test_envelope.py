"""Envelopes: what goes in comes out; everything else is refused before it is used. Rounds come once,
in order."""

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.deploy.envelope import Envelope, EnvelopeError, from_facts, place, spans, to_facts

ASK = Envelope("request", "run-1", "digest", "bank", "shop", round=5)


@pytest.mark.parametrize("missed", [(), (3, 4), (1, 2, 5, 7, 8)])
def test_round_trip(missed: tuple[int, ...]) -> None:
    asked = replace(ASK, missed=spans(missed), session="s", counter=7, answers="a")
    assert from_facts(to_facts(asked)) == asked


@pytest.mark.parametrize(
    "change",
    [{"kind": "exec"}, {"run": "../../etc"}, {"sender": ""}, {"round": -1}, {"round": True}, {"round": 1.5},
     {"missed": ["x"]}, {"missed": 3}, {"missed": [3]}, {"missed": [[4, 3]]}, {"missed": [[-1, 3]]},
     {"missed": [[0, 1 << 40]]}, {"missed": [[1, True]]}, {"missed": [[1, 2, 3]]},
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
    assert place(replace(ASK, missed=((3, 4),)), "aa", last=2, answered="") == "new"
    with pytest.raises(EnvelopeError):
        place(replace(ASK, missed=((4, 4),)), "aa", last=2, answered="")


def test_a_party_can_come_back_after_any_number_of_rounds() -> None:
    facts = to_facts(replace(ASK, round=500_000, missed=spans(range(2, 500_000))))
    assert len(str(facts)) < 1000
    envelope = from_facts(facts)
    assert place(envelope, "aa", last=1, answered="") == "new"
    with pytest.raises(EnvelopeError, match="not accounted for"):
        place(envelope, "aa", last=0, answered="")


@given(st.lists(st.integers(1, 40)), st.integers(0, 40), st.integers(1, 41))
def test_spans_say_the_same_as_the_rounds(rounds: list[int], last: int, asked: int) -> None:
    """A party accepts a round exactly if every round since its last one is among the missed."""
    envelope = replace(ASK, round=asked, missed=spans(sorted(set(rounds))))
    accounted = set(range(last + 1, asked)) <= set(rounds)
    try:
        accepted = place(envelope, "aa", last, answered="") == "new"
    except EnvelopeError:
        accepted = False
    assert accepted == (asked > last and accounted)


def test_a_header_that_names_a_billion_rounds_takes_no_memory() -> None:
    facts = {**to_facts(ASK), "round": 10, "missed": [[0, 2_000_000_000]]}
    tracemalloc.start()
    try:
        assert place(from_facts(facts), "aa", last=1, answered="") == "new"
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
