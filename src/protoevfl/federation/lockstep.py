"""The driver: advances the talks of several runs in lockstep and hands all their requests to one engine."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from protoevfl.errors import UserError
from protoevfl.messages import Message
from protoevfl.method import PartyError, Report

Address = tuple[int, int]  # (run, party)
T = TypeVar("T")


class Engine(Protocol):
    """Carries requests to parties and brings their replies back."""

    def exchange(self, requests: Mapping[Address, Message]) -> Mapping[Address, Message | PartyError]: ...


class PartyLostError(UserError):
    """A party did not answer and the policy says to stop."""


def drive(
    talks: Sequence[Generator[Any, Any, T]], engine: Engine, on_party_loss: str = "abort"
) -> Generator[tuple[int, Report], None, list[T]]:
    """Runs all talks to their end; yields (run, report); returns what each talk returned.

    With on_party_loss = "skip" a lost party is simply missing from the replies, else the run stops and names it.
    """
    if on_party_loss not in ("abort", "skip"):
        raise UserError(f"on_party_loss must be abort or skip, not '{on_party_loss}'")
    results: dict[int, T] = {}
    waiting: dict[int, Any] = dict.fromkeys(range(len(talks)))  # what to send into each talk next
    while waiting:
        asked: dict[int, Mapping[int, Message]] = {}
        for run, replies in waiting.items():
            answer = replies
            while run not in asked and run not in results:
                try:
                    item = talks[run].send(answer)
                except StopIteration as stop:
                    results[run] = stop.value
                    break
                if isinstance(item, Report):
                    yield run, item
                    answer = None
                else:
                    asked[run] = item
        requests = {(run, m): message for run, batch in asked.items() for m, message in batch.items()}
        got = engine.exchange(requests) if requests else {}
        waiting = {run: _replies(run, batch, got, on_party_loss) for run, batch in asked.items()}
    return [results[run] for run in range(len(talks))]


def _replies(
    run: int, batch: Mapping[int, Message], got: Mapping[Address, Message | PartyError], policy: str
) -> dict[int, Message]:
    replies: dict[int, Message] = {}
    for m in batch:
        reply = got.get((run, m), PartyError(m, "the engine brought no reply"))
        if not isinstance(reply, PartyError):
            replies[m] = reply
        elif policy != "skip":
            raise PartyLostError(f"party {m} did not answer: {reply.reason}")
    return replies


def finish(talks: Sequence[Generator[Any, Any, T]], engine: Engine) -> list[T]:
    """`drive` without anybody watching."""
    driving = drive(talks, engine)
    while True:
        try:
            next(driving)
        except StopIteration as stop:
            results: list[T] = stop.value
            return results
