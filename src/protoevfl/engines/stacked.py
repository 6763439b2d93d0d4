"""The batched engine: parties (and seeds) of equal shape are members of one stacked model.

Members whose requests arrive together, with the same type and scalars, are answered by one batched computation.
If only some members of a cohort are asked (a seed has stopped early), they are taken out, answered and put back.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch

from protoevfl.data.table import PartyTable
from protoevfl.drive import Address
from protoevfl.messages import Message, scalars
from protoevfl.method import Method
from protoevfl.party import Cohort, Rows


class Stacked:
    """tables and keys by (run, party); cohorts are formed by shape."""

    def __init__(
        self, method: Method, tables: Mapping[Address, PartyTable], keys: Mapping[Address, int], device: str = "cpu"
    ) -> None:
        where = torch.device(device)
        groups: dict[object, list[Address]] = defaultdict(list)
        for address, table in tables.items():
            groups[_signature(table)].append(address)
        self.cohorts: list[tuple[list[Address], Cohort]] = []
        for members in groups.values():
            stacked_keys = torch.tensor([keys[a] for a in members], dtype=torch.int64, device=where)
            rows = Rows.of([tables[a] for a in members], where)
            self.cohorts.append((members, Cohort(method, rows, stacked_keys)))

    def describe(self) -> str:
        """How the parties were grouped, for the user to see."""
        sizes = sorted((len(members) for members, _ in self.cohorts), reverse=True)
        return f"{sum(sizes)} parties in {len(sizes)} batched model(s) of size {', '.join(map(str, sizes))}"

    def members(self) -> list[tuple[list[Address], Cohort]]:
        """Who is computed together."""
        return self.cohorts

    def exchange(self, requests: Mapping[Address, Message]) -> dict[Address, Message]:
        replies: dict[Address, Message] = {}
        for members, cohort in self.cohorts:
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
    return table.pool.shape, table.aligned.shape, table.query.shape, table.pool.dtype, spans
