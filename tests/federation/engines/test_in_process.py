"""The loop engine asks each party; over the wire format nothing changes."""

import pytest
import torch

from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.lockstep import Address
from protoevfl.federation.party import Party
from protoevfl.messages import Embed, Embeddings, MessageError, values
from protoevfl.method import Method
from tests.tiny import QUERY, addresses, finish, image_table, owner, party_keys, quick

PROTO, SPLIT = quick("proto_evfl"), quick("vanilla", epochs=2)


def parties(method: Method) -> dict[Address, Party]:
    keys = party_keys(1, 2)
    return {a: Party(method, image_table(a[0], a[1]), keys[a]) for a in addresses(1, 2)}


def test_every_party_answers_for_itself() -> None:
    engine = InProcess(parties(PROTO))
    replies = engine.exchange({(0, 1): Embed("query")})
    assert set(replies) == {(0, 1)}
    both = engine.exchange({(0, 0): Embed("query"), (0, 1): Embed("query")})
    assert torch.equal(values(both[0, 1]), values(replies[0, 1]))
    assert not torch.equal(values(both[0, 0]), values(both[0, 1]))
    assert values(both[0, 0]).shape == (QUERY, 84)


@pytest.mark.parametrize("method", [PROTO, SPLIT], ids=["proto_evfl", "vanilla"])
def test_the_wire_format_changes_nothing(method: Method) -> None:
    found = []
    for wire in (False, True):
        engine, mine = InProcess(parties(method), wire=wire), owner()
        finish([method.train(mine)], engine)
        found.append(finish([method.predict(mine, (0, 1))], engine)[0])
    assert torch.equal(found[0], found[1])


def test_over_the_wire_a_party_that_breaks_is_noticed() -> None:
    class Broken(Party):
        def handle(self, request: object) -> Embeddings:  # type: ignore[override]
            return Embeddings(torch.full((2, 2), torch.nan))

    broken = Broken(PROTO, image_table(), 1)
    with pytest.raises(MessageError, match="NaN"):
        InProcess({(0, 0): broken}, wire=True).exchange({(0, 0): Embed("query")})
