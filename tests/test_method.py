"""What every method must hold, by its name in the table: the same numbers over the wire, rebuilt,
batched, twice.

Each method runs on tiny images with all its loops cut to one or two turns.
"""

import dataclasses
from collections.abc import Mapping
from functools import cache

import pytest
import torch
from torch import Tensor

from protoevfl import codec
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.lockstep import Address, Engine
from protoevfl.federation.middleware import Recorded
from protoevfl.federation.owner import Central, LabelOwner
from protoevfl.federation.party import Party
from protoevfl.messages import Message
from protoevfl.methods import METHODS, method_class
from protoevfl.settings.method_choice import CENTRAL
from tests.tiny import (
    CLASSES,
    QUERY,
    addresses,
    finish,
    image_table,
    labels,
    owner,
    party_keys,
    quick,
)

PARTIES = 2
EVERY = pytest.mark.parametrize("name", METHODS)


def owner_of(name: str) -> LabelOwner:
    mine = owner(0, PARTIES)
    if name in CENTRAL:
        tables = [image_table(0, m) for m in range(PARTIES)]
        pool, query = (
            torch.cat([getattr(t, part) for t in tables], 1) for part in ("pool", "query")
        )
        mine.central = Central(pool, labels(0, len(pool)), query)
    return mine


def parties(name: str) -> dict[Address, Party]:
    keys = party_keys(1, PARTIES)
    return {a: Party(quick(name), image_table(*a), keys[a]) for a in addresses(1, PARTIES)}


class Forgetful:
    """Rebuilds every party from configuration and state before each message."""

    def __init__(self, name: str) -> None:
        self.name, self.states = name, dict[Address, dict[str, Tensor]]()

    def exchange(self, requests: Mapping[Address, Message]) -> dict[Address, Message]:
        replies, fresh = {}, parties(self.name)
        for address, request in requests.items():
            if address in self.states:
                fresh[address].restore(self.states[address])
            replies[address] = fresh[address].handle(request)
            self.states[address] = fresh[address].state()
        return replies


def predicted(name: str, engine: Engine, present: tuple[int, ...] = (0, 1)) -> Tensor:
    mine, doing = owner_of(name), quick(name)
    finish([doing.train(mine)], engine)
    return finish([doing.predict(mine, present)], engine)[0]


@cache
def plain(name: str) -> Tensor:
    return predicted(name, InProcess(parties(name)))


@EVERY
def test_predicts_probabilities(name: str) -> None:
    found = plain(name)
    assert found.shape == (QUERY, CLASSES)
    torch.testing.assert_close(found.sum(1), torch.ones(QUERY))
    assert not found.requires_grad


@EVERY
def test_the_wire_changes_nothing_and_only_declared_types_cross(name: str) -> None:
    engine = Recorded(InProcess(parties(name), wire=True))
    assert torch.equal(predicted(name, engine), plain(name))
    for _, _, request, reply in engine.transcript:
        assert type(request) in codec._registry().values()
        assert type(reply) in codec._registry().values()


@EVERY
def test_a_party_can_be_rebuilt_between_any_two_messages(name: str) -> None:
    assert torch.equal(predicted(name, Forgetful(name)), plain(name))


@EVERY
def test_batched_parties_give_the_same(name: str) -> None:
    tables = {a: image_table(*a) for a in addresses(1, PARTIES)}
    engine = Stacked(quick(name), tables, party_keys(1, PARTIES))
    torch.testing.assert_close(predicted(name, engine), plain(name), atol=5e-3, rtol=0)


@EVERY
def test_a_missing_party_can_be_done_without(name: str) -> None:
    for present in ((0,), (0, 1)):
        found = predicted(name, InProcess(parties(name)), present)
        torch.testing.assert_close(found.sum(1), torch.ones(QUERY))


@EVERY
def test_the_table_names_the_method(name: str) -> None:
    cls = method_class(name)
    assert cls.name == name
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert cls.__doc__
