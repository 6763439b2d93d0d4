"""Parties: private rows and a private network behind one door, `handle(request) -> reply`.

A `Cohort` is G parties of equal shape as one batched model; `Party` is the cohort of one that a
company runs. What must outlive a message is in `state()`: network, optimiser and memory tensors,
all with a leading axis G.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from protoevfl import distributed
from protoevfl.codec import stack, to, unstack
from protoevfl.messages import Embed, Embeddings, ForwardBatch, Learned, Message, Projections
from protoevfl.method import Method
from protoevfl.privacy.gives_away import columns_of, gives_away
from protoevfl.rows.table import PartyTable

Progress = Callable[[str, int, int], None]


def _silent(phase: str, step: int, steps: int) -> None:
    """The default progress callback."""


@dataclass
class Rows:
    """What G parties hold, stacked: (G, n, ...) each; bytes for images, floats for tables. Under
    torchrun the pool is dealt out (`distributed.Dealt`)."""

    pool: Tensor
    aligned: Tensor
    query: Tensor
    spans: tuple[tuple[int, int], ...] | None = None
    numbers: tuple[int, ...] = ()
    further: Tensor | None = None  # (G, n_f, ...)

    @classmethod
    def of(cls, tables: Sequence[PartyTable], device: torch.device) -> "Rows":
        def together(name: str) -> Tensor:
            return torch.stack([getattr(t, name) for t in tables]).to(device)

        spans = tables[0].spans
        pool = distributed.deal([t.pool for t in tables], device)
        return cls(
            pool,
            together("aligned"),
            together("query"),
            None if spans is None else tuple(spans),
            tables[0].numbers,
            together("further"),
        )

    def take(self, members: list[int]) -> "Rows":
        further = None if self.further is None else self.further[members]
        return Rows(
            self.pool[members],
            self.aligned[members],
            self.query[members],
            self.spans,
            self.numbers,
            further,
        )


class Cohort:
    """G parties answering as one batched model."""

    def __init__(
        self,
        method: Method,
        rows: Rows,
        keys: Tensor,
        net: nn.Module | None = None,
        progress: Progress = _silent,
    ) -> None:
        self.method, self.rows, self.keys, self.progress = method, rows, keys, progress
        # fewest rows of the pool that a mean may be made of, where a company says so
        self.least_component_rows = 0
        self.net = net if net is not None else method.party_net(tuple(rows.pool.shape[2:]), keys)
        self.memory: dict[str, Tensor] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        # names of the state that these members do not hold (yet)
        self.absent: dict[str, set[int]] = {}

    @property
    def size(self) -> int:
        return len(self.keys)

    def handle_all(self, requests: Sequence[Message]) -> list[Message]:
        """One reply a member; the requests are of one type with equal scalars."""
        request = to(stack(requests), self.keys.device)
        return unstack(self.method.answer(self, request), self.size)

    def state(self) -> dict[str, Tensor]:
        """Everything that must outlive a message, names -> tensors (G, ...); copies, which stay as
        they are."""
        state = {f"net.{n}": t.detach().clone() for n, t in self.net.state_dict().items()}
        state |= {f"memory.{n}": t.detach().clone() for n, t in self.memory.items()}
        state |= {n: t for n, t in self._waiting.items() if n.split(".")[1] not in self.optimizers}
        for name, optimizer in self.optimizers.items():
            for p, slots in _slots(optimizer):
                for slot, value in slots.items():
                    spread = value.expand(self.size) if value.dim() == 0 else value
                    state[f"optimizer.{name}.{p}.{slot}"] = spread.detach().clone()
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Back to a state of `state()`; optimisers are rebuilt by the method when it next asks for
        them."""
        device = self.keys.device
        with torch.no_grad():
            for name, tensor in self.net.state_dict().items():
                tensor.copy_(state[f"net.{name}"])
        self.memory = {
            n.removeprefix("memory."): _copy(t, device)
            for n, t in state.items()
            if n.startswith("memory.")
        }
        self.optimizers, self.absent = {}, {}
        self._waiting = {
            n: _copy(t, device) for n, t in state.items() if n.startswith("optimizer.")
        }

    _waiting: dict[str, Tensor] = {}  # noqa: RUF012 -- replaced, never mutated

    def optimizer(
        self, name: str, make: Callable[[], torch.optim.Optimizer]
    ) -> torch.optim.Optimizer:
        """The optimiser of that name, made on first use, continued after `restore`."""
        if name not in self.optimizers:
            self.optimizers[name] = optimizer = make()
            _load_slots(
                optimizer,
                {n: t for n, t in self._waiting.items() if n.startswith(f"optimizer.{name}.")},
            )
        return self.optimizers[name]

    def kinds(self) -> list[object]:
        """Members of one kind can be computed together: they hold the same names, their optimisers
        are at one step."""
        idle = {n: t for n, t in self._waiting.items() if n.split(".")[1] not in self.optimizers}
        steps = [t.tolist() for n, t in idle.items() if n.endswith(".step")]

        def kind(member: int) -> object:
            lacking = frozenset(name for name, who in self.absent.items() if member in who)
            return lacking, tuple(step[member] for step in steps)

        return [kind(member) for member in range(self.size)]

    def take(self, members: list[int]) -> "Cohort":
        """Some members of one kind as a cohort of their own (copies; give back with `put`)."""
        part = Cohort(
            self.method, self.rows.take(members), self.keys[members], progress=self.progress
        )
        held = {n: t for n, t in self.state().items() if members[0] not in self.absent.get(n, ())}
        part.restore({n: _members(t, self.size)[members].flatten(0, 1) for n, t in held.items()})
        return part

    def put(self, members: list[int], part: "Cohort") -> None:
        """Takes back what `take` lent out; what only they hold, or no longer hold, is noted in
        `absent`."""
        whole = self.state()
        piece = part.state()
        everyone = set(range(self.size))
        absent = {name: self.absent.get(name, set()) | set(members) for name in whole}
        for name, tensor in piece.items():
            slices = _members(tensor, part.size)  # (members, k, ...)
            old = whole.get(name)
            new = (
                slices.new_zeros(self.size, *slices.shape[1:])
                if old is None
                else _members(old, self.size).clone()
            )
            new[members] = slices
            whole[name] = new.flatten(0, 1)
            absent[name] = absent.get(name, everyone) - set(members)
        self.restore({name: tensor for name, tensor in whole.items() if absent[name] != everyone})
        self.absent = {name: who for name, who in absent.items() if who and who != everyone}


def _copy(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.detach().to(device, copy=True)


def _members(tensor: Tensor, size: int) -> Tensor:
    """(size*k, ...) -> (size, k, ...): a member may own k consecutive entries (an ensemble of k
    networks)."""
    return tensor.reshape(size, len(tensor) // size, *tensor.shape[1:])


def _slots(optimizer: torch.optim.Optimizer) -> list[tuple[int, dict[str, Tensor]]]:
    params = [p for group in optimizer.param_groups for p in group["params"]]
    numbered = [(i, optimizer.state.get(p, {})) for i, p in enumerate(params)]
    return [(i, _tensors(slots)) for i, slots in numbered if slots]


def _tensors(values: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _load_slots(optimizer: torch.optim.Optimizer, saved: dict[str, Tensor]) -> None:
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for name, tensor in saved.items():
        index, slot = name.split(".")[-2:]
        value = tensor.max() if slot == "step" else tensor  # members of a cohort step together
        optimizer.state[params[int(index)]][slot] = value.clone()


class Party(Cohort):
    """One company's party: the cohort of one."""

    def __init__(
        self,
        method: Method,
        table: PartyTable,
        key: int,
        device: str = "cpu",
        progress: Progress = _silent,
    ) -> None:
        where = torch.device(device)
        super().__init__(
            method, Rows.of([table], where), torch.tensor([key], device=where), progress=progress
        )
        self.table = table

    def handle(self, request: Message) -> Message:
        """The only way in or out."""
        return self.handle_all([request])[0]

    def gives_away(
        self,
        request: Message,
        reply: Message,
        names: Sequence[str] = (),
        earlier: Sequence[Tensor] = (),
        places: Tensor | None = None,
    ) -> dict[str, float]:
        """{column: 0 to 1}: what a reply about to leave gives away of the rows it describes.

        Empty for messages that describe no rows and for too few rows to tell: where a bound is to
        be kept, a reply about rows without a score must not leave.

        reply     as it would leave: clipped, with its noise
        names     of the party's columns, in the order of its table's spans
        earlier   (n, d) each: what left before of the same rows; decoders use all of it together
        places    (n,) of the reply's rows to measure on; all of them where there are none
        """
        if not isinstance(reply, Embeddings | Learned | Projections):
            return {}
        row_set = request.rows if isinstance(request, Embed) else "aligned"
        rows = getattr(self.rows, row_set)[0]
        if isinstance(request, ForwardBatch):
            rows = rows[request.rows]
        values = reply.values.cpu()
        if places is not None:
            rows, values = rows[places], values[places]
        sent = torch.cat([*earlier, values], 1)
        return gives_away(columns_of(rows, self.rows.spans, self.rows.numbers, names), sent)
