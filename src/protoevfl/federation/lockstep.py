"""The one driving loop: advances the talks of several runs in lockstep and hands all requests to
one engine."""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol, TypeVar

from protoevfl.errors import UserError
from protoevfl.messages import Message
from protoevfl.method import PartyError, Report, Work

Address = tuple[int, int]  # (run, party)
T = TypeVar("T")


class Engine(Protocol):
    """Carries requests to parties and brings their replies back."""

    def exchange(
        self, requests: Mapping[Address, Message]
    ) -> Mapping[Address, Message | PartyError]: ...


class PartyLostError(UserError):
    """A party did not answer and the policy says to stop."""


def lockstep(
    talks: Mapping[int, Generator[Any, Any, T]],
    engine: Engine,
    on_report: Callable[[Report, int], None] = lambda report, run: None,
    on_party_loss: str = "abort",
) -> dict[int, T]:
    """Runs all talks (by run number) to their end and returns what each of them returned.

    on_report       called with every report and the number of its run
    on_party_loss   "skip": a lost party is missing from the replies; "abort": the run stops and
    names it
    """
    if on_party_loss not in ("abort", "skip"):
        raise UserError(f"on_party_loss must be abort or skip, not '{on_party_loss}'")
    results: dict[int, T] = {}
    replies: dict[int, Any] = dict.fromkeys(talks)  # what each talk receives next
    while replies:
        requests: dict[int, Mapping[int, Message]] = {}
        works: dict[int, Work] = {}
        for run, received in replies.items():
            try:
                item = _next_item(talks[run], received, run, on_report)
            except StopIteration as stop:
                results[run] = stop.value
                continue
            if isinstance(item, Work):
                works[run] = item
            else:
                requests[run] = item
        addressed = {
            (run, m): message for run, batch in requests.items() for m, message in batch.items()
        }
        answers = engine.exchange(addressed) if addressed else {}
        replies = {
            run: _replies(run, batch, answers, on_party_loss) for run, batch in requests.items()
        }
        replies |= _done(works)
    return {run: results[run] for run in talks}


def _next_item(
    talk: Generator[Any, Any, Any],
    received: Any,
    run: int,
    on_report: Callable[[Report, int], None],
) -> Mapping[int, Message] | Work:
    """Advances a talk past its reports to its next request or piece of the owner's work."""
    item = talk.send(received)
    while isinstance(item, Report):
        on_report(item, run)
        item = talk.send(None)
    request: Mapping[int, Message] | Work = item
    return request


def _done(works: Mapping[int, Work]) -> dict[int, Any]:
    """The results of the owners' works by run; those of one kind are done together."""
    results: dict[int, Any] = {}
    for kind in {type(work) for work in works.values()}:
        alike = {run: work for run, work in works.items() if type(work) is kind}
        results |= zip(alike, kind.together(list(alike.values())), strict=True)
    return results


def _replies(
    run: int,
    batch: Mapping[int, Message],
    answers: Mapping[Address, Message | PartyError],
    on_party_loss: str,
) -> dict[int, Message]:
    replies: dict[int, Message] = {}
    for m in batch:
        reply = answers.get((run, m), PartyError(m, "the engine brought no reply"))
        if not isinstance(reply, PartyError):
            replies[m] = reply
        elif on_party_loss != "skip":
            raise PartyLostError(f"party {m} did not answer: {reply.reason}")
    return replies
