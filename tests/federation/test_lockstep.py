"""The driver advances runs in lockstep, passes reports on in order, and stops or skips when a party
is lost."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.federation.lockstep import Address, PartyLostError, lockstep
from protoevfl.messages import Describe, Done, Message
from protoevfl.method import PartyError, Replies, Report, Requests, Work
from tests.tiny import finish, reports_of


class Echo:
    """An engine that answers everything with the request and keeps what it was asked."""

    def __init__(self, lost: dict[Address, str] | None = None) -> None:
        self.asked: list[dict[Address, Message]] = []
        self.lost = lost or {}

    def exchange(self, requests: Mapping[Address, Message]) -> dict[Address, Message | PartyError]:
        self.asked.append(dict(requests))
        return {
            a: PartyError(a[1], self.lost[a]) if a in self.lost else r for a, r in requests.items()
        }


def talk(steps: int, parties: int = 2) -> Generator[Requests | Report, Replies, list[int]]:
    """Asks `steps` times and reports twice after each; returns how many parties answered each
    time."""
    answered = []
    for step in range(steps):
        replies = yield {m: Describe(10 * m + step) for m in range(parties)}
        assert all(replies[m] == Describe(10 * m + step) for m in replies)
        answered.append(len(replies))
        yield Report("a", step, steps)
        yield Report("b", step, steps)
    return answered


def test_runs_of_different_lengths_go_in_lockstep() -> None:
    engine = Echo()
    results = finish([talk(1), talk(3), talk(0)], engine)
    assert [sorted({run for run, _ in batch}) for batch in engine.asked] == [[0, 1], [1], [1]]
    assert results == [[2], [2, 2, 2], []]
    assert len(reports_of([talk(1), talk(3), talk(0)], Echo())) == 8


def test_each_run_gets_its_own_replies() -> None:
    engine = Echo()
    finish([talk(2, parties=1), talk(2, parties=3)], engine)
    assert set(engine.asked[0]) == {(0, 0), (1, 0), (1, 1), (1, 2)}


@dataclass(frozen=True)
class Doubled(Work):
    """Twice a number, together with how many runs asked at once."""

    number: int

    @classmethod
    def together(cls, works: Sequence[Work]) -> list[Any]:
        return [(2 * work.number, len(works)) for work in works if isinstance(work, Doubled)]


def test_the_owners_work_of_several_runs_is_done_together_and_asks_nobody() -> None:
    def working(number: int, before: int) -> Generator[Any, Any, tuple[int, int]]:
        for _ in range(before):
            yield {0: Describe(number)}
        result: tuple[int, int] = yield Doubled(number)
        yield Report("worked", 1, 1)
        return result

    engine = Echo()
    assert finish([working(3, 0), working(4, 0), working(5, 1)], engine) == [
        (6, 2),
        (8, 2),
        (10, 1),
    ]
    assert [list(batch) for batch in engine.asked] == [[(2, 0)]]


def test_reports_come_in_order() -> None:
    seen = reports_of([talk(2), talk(2)], Echo())
    for run in range(2):
        mine = [(r.phase, r.step) for number, r in seen if number == run]
        assert mine == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    # lockstep: no run is a step ahead
    assert [r.step for _, r in seen] == sorted(r.step for _, r in seen)


def test_reports_before_the_first_and_without_any_request() -> None:
    def quiet() -> Generator[Requests | Report, Replies, str]:
        yield Report("only")
        return "end"

    engine = Echo()
    assert finish([quiet(), quiet()], engine) == ["end", "end"]
    assert engine.asked == []
    assert reports_of([quiet()], engine) == [(0, Report("only"))]


def test_asking_nobody_is_answered_by_nobody() -> None:
    def lonely() -> Generator[Requests | Report, Replies, Replies]:
        replies = yield {}
        return replies

    engine = Echo()
    assert finish([lonely()], engine) == [{}]
    assert engine.asked == []


def test_no_runs_at_all() -> None:
    assert finish([], Echo()) == []


def test_a_lost_party_stops_the_run_and_is_named() -> None:
    with pytest.raises(PartyLostError, match="party 1 did not answer: no route") as caught:
        finish([talk(2)], Echo({(0, 1): "no route"}))
    assert isinstance(caught.value, UserError)


def test_a_lost_party_can_be_skipped() -> None:
    results = finish([talk(2), talk(2)], Echo({(1, 0): "gone"}), on_party_loss="skip")
    assert results == [[2, 2], [1, 1]]


def test_an_engine_that_forgets_a_party_counts_as_its_loss() -> None:
    class Forgetful(Echo):
        def exchange(
            self, requests: Mapping[Address, Message]
        ) -> dict[Address, Message | PartyError]:
            return {a: r for a, r in requests.items() if a != (0, 1)}

    with pytest.raises(PartyLostError, match="party 1"):
        finish([talk(1)], Forgetful())


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UserError, match="abort or skip"):
        finish([talk(1)], Echo(), on_party_loss="ignore")


def test_runs_keep_their_numbers() -> None:
    engine = Echo()
    results = lockstep({3: talk(1), 5: talk(2)}, engine)
    assert set(engine.asked[0]) == {(3, 0), (3, 1), (5, 0), (5, 1)}
    assert results == {3: [2], 5: [2, 2]}


def test_an_error_in_a_talk_is_not_swallowed() -> None:
    def broken() -> Generator[Requests | Report, Replies, None]:
        yield {0: Done()}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        finish([broken()], Echo())


def test_results_may_be_tensors() -> None:
    def answer() -> Generator[Requests | Report, Replies, torch.Tensor]:
        yield {0: Done()}
        return torch.ones(2)

    assert torch.equal(finish([answer()], Echo())[0], torch.ones(2))
