"""Wrappers around any engine: count the bytes, keep a transcript, guard what leaves."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from protoevfl.codec import payload_bytes
from protoevfl.federation.lockstep import Address, Engine
from protoevfl.messages import Embed, Message
from protoevfl.method import PartyError
from protoevfl.privacy.policy import OwnerGuard


@dataclass
class Metered:
    """Counts payload bytes by (run, party, direction, type). The active party's own columns do not
    cross a border."""

    engine: Engine
    active: int = 0
    counts: Counter[tuple[int, int, str, str]] = field(default_factory=Counter)
    rounds: Counter[int] = field(default_factory=Counter)

    def exchange(
        self, requests: Mapping[Address, Message]
    ) -> Mapping[Address, Message | PartyError]:
        replies = self.engine.exchange(requests)
        crossing = {run for run, party in requests if party != self.active}
        self.rounds.update(crossing)
        for (run, party), request in requests.items():
            if party != self.active:
                self._count(run, party, "down", request)
                reply = replies.get((run, party))
                if isinstance(reply, Message):
                    self._count(run, party, "up", reply)
        return replies

    def _count(self, run: int, party: int, direction: str, message: Message) -> None:
        self.counts[run, party, direction, type(message).__name__] += payload_bytes(message)

    def ledger(self, run: int) -> dict[str, object]:
        """{"up", "down", "by_type", "by_party"} of one run."""
        own_counts = {(p, d, t): n for (r, p, d, t), n in self.counts.items() if r == run}
        by_type: dict[str, dict[str, int]] = {}
        by_party: dict[str, dict[str, int]] = {}
        for (party, direction, kind), n in sorted(own_counts.items()):
            if n:
                for table, name in ((by_type, kind), (by_party, str(party))):
                    row = table.setdefault(name, {"up": 0, "down": 0})
                    row[direction] += n
        total = {
            d: sum(n for (_, way, _), n in own_counts.items() if way == d) for d in ("up", "down")
        }
        return {**total, "by_type": by_type, "by_party": by_party}


@dataclass
class Recorded:
    """Keeps every message: [(run, party, request, reply)], for audits and attacks."""

    engine: Engine
    transcript: list[tuple[int, int, Message, Message | PartyError]] = field(default_factory=list)

    def exchange(
        self, requests: Mapping[Address, Message]
    ) -> Mapping[Address, Message | PartyError]:
        replies = self.engine.exchange(requests)
        for (run, party), request in requests.items():
            reply = replies.get((run, party), PartyError(party, "the engine brought no reply"))
            self.transcript.append((run, party, request, reply))
        return replies


@dataclass
class QueryCache:
    """Remembers the embeddings of the rows to be predicted, so that asking for every subset of
    parties is free."""

    engine: Engine
    seen: dict[Address, Message] = field(default_factory=dict)

    def clear(self) -> None:
        self.seen = {}

    def exchange(
        self, requests: Mapping[Address, Message]
    ) -> Mapping[Address, Message | PartyError]:
        query_requests = [
            a for a, r in requests.items() if isinstance(r, Embed) and r.rows == "query"
        ]
        known = {a: self.seen[a] for a in query_requests if a in self.seen}
        new = {a: r for a, r in requests.items() if a not in known}
        replies = {**(self.engine.exchange(new) if new else {}), **known}
        self.seen |= {
            a: reply for a in query_requests if isinstance(reply := replies.get(a), Message)
        }
        return replies


@dataclass
class Leaving:
    """Applies each party's guard to what leaves it; `up` maps (address, reply) to the reply that
    may leave."""

    engine: Engine
    up: Callable[[Address, Message], Message]

    def exchange(
        self, requests: Mapping[Address, Message]
    ) -> Mapping[Address, Message | PartyError]:
        replies = self.engine.exchange(requests)
        return {a: self.up(a, r) if isinstance(r, Message) else r for a, r in replies.items()}


@dataclass
class Defended:
    """Applies the label owner's guard of each run (privacy/policy.py) to requests before they leave
    and replies as they arrive. What lies inside (`Metered`, `Recorded`) sees only what crosses the
    border."""

    engine: Engine
    guards: Mapping[int, OwnerGuard]

    def exchange(
        self, requests: Mapping[Address, Message]
    ) -> Mapping[Address, Message | PartyError]:
        sent = {
            (run, party): self.guards[run].down(party, request)
            for (run, party), request in requests.items()
        }
        replies = self.engine.exchange(sent)
        return {
            (run, party): self.guards[run].received(party, reply)
            if isinstance(reply, Message)
            else reply
            for (run, party), reply in replies.items()
        }
