"""The batched engine: parties (and seeds) of equal shape are members of one stacked model.

Members whose requests arrive together, with the same type and scalars, are answered by one batched
computation. If only some members of a cohort are asked (a seed has stopped early), they are taken
out, answered and put back. On a CPU with two threads or more there are two models, side by side
(federation/engines/cpu_threads.py).
"""

from collections import defaultdict
from collections.abc import Mapping

import torch

from protoevfl.codec import scalars
from protoevfl.federation.engines.cpu_threads import Lanes, lanes_for, parts
from protoevfl.federation.lockstep import Address
from protoevfl.federation.party import Cohort, Rows
from protoevfl.messages import Message
from protoevfl.method import Method
from protoevfl.rows.table import PartyTable


class Stacked:
    """tables and keys by (run, party); cohorts are formed by shape."""

    def __init__(
        self,
        method: Method,
        tables: Mapping[Address, PartyTable],
        keys: Mapping[Address, int],
        device: str = "cpu",
    ) -> None:
        where = torch.device(device)
        lanes = lanes_for(where)
        groups: dict[object, list[Address]] = defaultdict(list)
        for address, table in tables.items():
            groups[_signature(table)].append(address)
        self.cohorts: list[tuple[list[Address], Cohort]] = []
        for members in (some for alike in groups.values() for some in parts(alike, lanes)):
            stacked_keys = torch.tensor([keys[a] for a in members], dtype=torch.int64, device=where)
            rows = Rows.of([tables[a] for a in members], where)
            self.cohorts.append((members, Cohort(method, rows, stacked_keys)))
        self.lanes = Lanes(lanes) if lanes > 1 and len(self.cohorts) > 1 else None

    def describe(self) -> str:
        """How the parties were grouped, for the user to see."""
        sizes = sorted((len(members) for members, _ in self.cohorts), reverse=True)
        return f"{sum(sizes)} parties in {len(sizes)} batched model(s) of size {', '.join(map(str, sizes))}"

    def members(self) -> list[tuple[list[Address], Cohort]]:
        """Who is computed together."""
        return self.cohorts

    def exchange(self, requests: Mapping[Address, Message]) -> dict[Address, Message]:
        def ask(who: tuple[list[Address], Cohort]) -> dict[Address, Message]:
            return _exchange(*who, requests)

        asked = [
            (members, cohort)
            for members, cohort in self.cohorts
            if not requests.keys().isdisjoint(members)
        ]
        if self.lanes is None or len(asked) < 2:
            found = [ask(who) for who in asked]
        else:
            found = self.lanes.each(ask, asked, [cohort for _, cohort in asked])
        return {address: reply for replies in found for address, reply in replies.items()}


def _exchange(
    members: list[Address], cohort: Cohort, requests: Mapping[Address, Message]
) -> dict[Address, Message]:
    replies: dict[Address, Message] = {}
    alike: dict[object, list[int]] = defaultdict(list)
    for index, (address, kind) in enumerate(zip(members, cohort.kinds(), strict=True)):
        if address in requests:
            request = requests[address]
            alike[type(request), tuple(scalars(request).items()), kind].append(index)
    for indices in alike.values():
        answered = _answer(cohort, indices, [requests[members[i]] for i in indices])
        replies |= {members[i]: reply for i, reply in zip(indices, answered, strict=True)}
    return replies


def _answer(cohort: Cohort, indices: list[int], requests: list[Message]) -> list[Message]:
    if len(indices) == cohort.size:
        return cohort.handle_all(requests)
    part = cohort.take(indices)
    replies = part.handle_all(requests)
    cohort.put(indices, part)
    return replies


def _signature(table: PartyTable) -> object:
    spans = None if table.spans is None else tuple(table.spans)
    assert table.further is not None
    shapes = [part.shape for part in (table.pool, table.aligned, table.query, table.further)]
    return *shapes, table.pool.dtype, spans, table.numbers
