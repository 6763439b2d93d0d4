"""Two halves side by side give what one batched model gives; errors, Ctrl-C and torch's switches
pass through."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from protoevfl.federation.engines.cpu_threads import Lanes, lanes_for
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.messages import Embed, WarmUp, values
from tests.tiny import addresses, image_table, party_keys, quick

CPU = torch.device("cpu")
WHERE = addresses(2, 3)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def engine() -> Stacked:
    return Stacked(
        quick("proto_evfl", warm__epochs=3), {a: image_table(*a) for a in WHERE}, party_keys(2, 3)
    )


@pytest.mark.usefixtures("one_thread")
def test_with_one_thread_or_a_gpu_there_is_one_lane() -> None:
    assert lanes_for(CPU) == torch.get_num_threads() == 1
    assert lanes_for(torch.device("cuda")) == 1
    assert engine().lanes is None


@pytest.mark.usefixtures("two_threads", "doubles")
def test_halves_answer_as_the_whole() -> None:
    both = engine()
    assert [len(members) for members, _ in both.cohorts] == [3, 3]
    assert both.lanes is not None
    asked = [dict.fromkeys(WHERE, request) for request in (WarmUp(), Embed("query"))]
    found = [both.exchange(requests) for requests in asked]
    assert torch.get_num_threads() == 2  # a lane's share of the cores is its own affair
    torch.set_num_threads(1)
    whole = engine()
    for requests, one in zip(asked, found, strict=True):
        other = whole.exchange(requests)
        assert list(one) == list(other)
        for a in WHERE:
            torch.testing.assert_close(values(one[a]), values(other[a]), atol=1e-6, rtol=0)
    some = both.exchange({WHERE[0]: Embed("query")})  # only one half is asked
    assert list(some) == [WHERE[0]]


@pytest.mark.usefixtures("two_threads")
def test_the_same_twice() -> None:
    first, second = (engine().exchange({a: WarmUp() for a in WHERE}) for _ in range(2))
    assert all(torch.equal(values(first[a]), values(second[a])) for a in WHERE)


@pytest.mark.usefixtures("two_threads")
def test_a_lane_has_its_share_of_the_cores_and_the_callers_gradient_switch() -> None:
    work = Lanes(2)
    assert work.each(lambda _: torch.get_num_threads(), range(4), []) == [1] * 4
    with torch.no_grad():
        assert work.each(lambda _: torch.is_grad_enabled(), range(2), []) == [False] * 2


def test_an_error_stops_the_others_at_their_next_report_and_is_told() -> None:
    told: list[Any] = []
    cohort: Any = SimpleNamespace(progress=lambda *what: told.append(what))

    def work(item: int) -> None:
        if item == 1:
            raise ValueError("no such rows")
        for epoch in range(10**9):
            cohort.progress("warm-up", epoch, 10**9)

    before = cohort.progress
    with pytest.raises(ValueError, match="no such rows"):
        Lanes(2).each(work, [0, 1], [cohort])
    assert cohort.progress is before
