"""The stacked engine gives what the loop gives: parties of any shape, seeds of different lengths,
several methods.

Batched products add up in another order, so all is compared in double precision (tests/precision.py
says why).
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.lockstep import Address
from protoevfl.federation.party import Party
from protoevfl.messages import BackwardBatch, Embed, Embeddings, ForwardBatch, WarmUp, values
from protoevfl.method import Method
from protoevfl.rows.table import PartyTable
from tests.tiny import (
    ALIGNED,
    addresses,
    column_table,
    finish,
    image_table,
    owner,
    party_keys,
    quick,
)

pytestmark = pytest.mark.usefixtures("doubles")
SEEDS, PARTIES, TOLERANCE = 2, 3, 1e-6
PROTO = quick("proto_evfl", warm__epochs=6, head__epochs=20, head__lr=2e-2)
SPLIT, SHORT = (quick("vanilla", epochs=epochs, batch=6, head_lr=2e-2) for epochs in (6, 2))
METHODS = pytest.mark.parametrize("method", [PROTO, SPLIT], ids=["proto_evfl", "vanilla"])
Tables = dict[Address, PartyTable]


def images() -> Tables:
    return {(r, m): image_table(r, m) for r, m in addresses(SEEDS, PARTIES)}


def columns() -> Tables:
    """Parties of different widths, as real tables have; the last two are alike."""
    return {(r, m): column_table(r, m, columns=(5, 7, 7)[m]) for r, m in addresses(SEEDS, PARTIES)}


def loop(method: Method, tables: Tables) -> InProcess:
    keys = party_keys(SEEDS, PARTIES)
    return InProcess({a: Party(method, tables[a], keys[a]) for a in tables})


def stacked(method: Method, tables: Tables) -> Stacked:
    return Stacked(method, tables, party_keys(SEEDS, PARTIES))


def trained(method: Method, engine: InProcess | Stacked) -> list[Tensor]:
    owners = [owner(seed, PARTIES) for seed in range(SEEDS)]
    finish([method.train(o) for o in owners], engine)
    return finish([method.predict(o, (0, 1, 2)) for o in owners], engine)


@METHODS
@pytest.mark.parametrize("make", [images, columns])
def test_predictions_equal_those_of_the_loop(method: Method, make: Any) -> None:
    together, alone = (
        trained(method, stacked(method, make())),
        trained(method, loop(method, make())),
    )
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, atol=TOLERANCE, rtol=0)
    assert (together[0] - together[1]).abs().max() > 0.02  # what the seeds differ by


@METHODS
def test_a_seed_gives_the_same_whatever_runs_beside_it(method: Method) -> None:
    everyone = trained(method, stacked(method, images()))
    mine = owner(1, PARTIES)
    tables = {(0, m): image_table(1, m) for m in range(PARTIES)}
    keys = {(0, m): party_keys(SEEDS, PARTIES)[1, m] for m in range(PARTIES)}
    engine = Stacked(method, tables, keys)
    finish([method.train(mine)], engine)
    alone = finish([method.predict(mine, (0, 1, 2))], engine)[0]
    torch.testing.assert_close(alone, everyone[1], atol=TOLERANCE, rtol=0)


def test_untrained_parties_embed_alike() -> None:
    tables = columns()
    requests = {a: Embed("query") for a in tables}
    one, other = loop(PROTO, tables).exchange(requests), stacked(PROTO, tables).exchange(requests)
    assert set(one) == set(other)
    for a in one:
        torch.testing.assert_close(values(one[a]), values(other[a]), atol=TOLERANCE, rtol=0)


@pytest.mark.usefixtures("one_thread")  # two threads: two models, side by side
def test_parties_are_grouped_by_shape() -> None:
    assert stacked(PROTO, images()).describe() == "6 parties in 1 batched model(s) of size 6"
    engine = stacked(PROTO, columns())
    assert engine.describe() == "6 parties in 2 batched model(s) of size 4, 2"
    assert sorted(sorted(members) for members, _ in engine.cohorts) == [
        [(0, 0), (1, 0)],
        [(0, 1), (0, 2), (1, 1), (1, 2)],
    ]


@pytest.mark.usefixtures("one_thread")
def test_pools_of_different_sizes_are_not_stacked() -> None:
    tables = {(0, m): image_table(0, m, pool=20 + m) for m in range(2)}
    assert len(Stacked(PROTO, tables, party_keys(1, 2)).cohorts) == 2


def test_a_seed_that_stops_earlier_leaves_the_others_unharmed() -> None:
    found = []
    for engine in (stacked(SPLIT, images()), loop(SPLIT, images())):
        owners = [owner(seed, PARTIES) for seed in range(SEEDS)]
        finish([SPLIT.train(owners[0]), SHORT.train(owners[1])], engine)
        found.append(finish([SPLIT.predict(o, (0, 1, 2)) for o in owners], engine))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=TOLERANCE, rtol=0)


def test_optimisers_live_on_when_members_are_asked_one_by_one() -> None:
    """Each exchange reaches one party only, so that the cohort lends it out every time."""

    def walk(engine: InProcess | Stacked) -> dict[Address, Tensor]:
        for step in range(3):
            for a in images():
                rows = (torch.arange(6) + step) % ALIGNED
                z = values(engine.exchange({a: ForwardBatch(step, rows)})[a])
                engine.exchange({a: BackwardBatch(step, rows, z.sign() / 100)})
        replies = engine.exchange({a: Embed("query") for a in images()})
        return {a: values(reply) for a, reply in replies.items()}

    one, other = walk(stacked(SPLIT, images())), walk(loop(SPLIT, images()))
    for a in one:
        torch.testing.assert_close(one[a], other[a], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("layers", [["output"], ["output", "hidden"]], ids=len)
def test_requests_of_different_types_in_one_exchange(layers: list[str]) -> None:
    """With inner layers a party notes figures of its layers at its first embedding, each at its own
    time."""
    method = quick("proto_evfl", warm__epochs=6, layers=layers)
    tables = {a: t for a, t in images().items() if a[0] == 0}
    requests = {(0, 0): WarmUp(), (0, 1): Embed("query"), (0, 2): Embed("aligned")}
    one, other = (
        loop(method, tables).exchange(requests),
        Stacked(method, tables, party_keys(1, 3)).exchange(requests),
    )
    for a, reply in one.items():
        assert isinstance(reply, Embeddings)
        torch.testing.assert_close(values(other[a]), reply.values, atol=TOLERANCE, rtol=0)


def test_a_member_that_joins_later_steps_by_its_own_count() -> None:
    """Adam's first step is larger than its tenth: steps are counted by member."""
    tables = {a: t for a, t in images().items() if a[0] == 0}
    found = []
    for engine in (loop(SPLIT, tables), Stacked(SPLIT, tables, party_keys(1, 3))):
        for step in range(3):
            asked = [(0, 1)] if step < 2 else list(tables)
            rows = (torch.arange(6) + step) % ALIGNED
            gradients = torch.linspace(-1, 1, 6 * 168).view(6, 168).sin()
            engine.exchange({a: BackwardBatch(step, rows, gradients) for a in asked})
        found.append(engine.exchange({a: Embed("query") for a in tables}))
    for a in tables:
        torch.testing.assert_close(values(found[0][a]), values(found[1][a]), atol=TOLERANCE, rtol=0)


def test_nobody_asked_nobody_answers() -> None:
    assert stacked(PROTO, images()).exchange({}) == {}
