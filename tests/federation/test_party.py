"""A party rebuilt from its state answers bit by bit as the one that went on; members can be lent
out and put back."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from protoevfl.codec import encode
from protoevfl.federation.party import Cohort, Party, Rows
from protoevfl.messages import (
    BackwardBatch,
    Done,
    Embed,
    Embeddings,
    ForwardBatch,
    Learn,
    Learned,
    Message,
    SendFeatures,
    WarmUp,
    values,
)
from protoevfl.method import Method
from protoevfl.rows.table import PartyTable
from tests.tiny import ALIGNED, CLASSES, column_table, image_table, keys, quick

PROTO, SPLIT = quick("proto_evfl", warm__epochs=2), quick("vanilla")
# remembers figures of its layers
LAYERS = quick("proto_evfl", warm__epochs=2, layers=["output", "hidden"])
Make = Callable[..., PartyTable]
TABLES = pytest.mark.parametrize("make", [image_table, column_table])


def learn(round_: int, width: int) -> Learn:
    mu = torch.linspace(-1, 1, CLASSES * width).view(CLASSES, width).cos()
    return Learn(round_, mu, torch.ones(CLASSES), torch.full((CLASSES,), 1 / CLASSES))


def backward(step: int, width: int) -> BackwardBatch:
    rows = (torch.arange(6) + step) % ALIGNED
    return BackwardBatch(step, rows, torch.linspace(-1, 1, 6 * width).view(6, width).sin())


def talk_of(name: str, width: int) -> tuple[Method, list[Message]]:
    """A method and the requests it would see, so many that a state can be taken between any two."""
    if name != "vanilla":
        return PROTO if name == "proto_evfl" else LAYERS, [
            WarmUp(),
            learn(0, width),
            Embed("query"),
            learn(1, width),
            Embed("aligned"),
        ]
    steps: list[Message] = [
        m for s in range(3) for m in (ForwardBatch(s, torch.arange(6)), backward(s, 2 * width))
    ]
    return SPLIT, [*steps, Embed("query")]


def width_of(make: Make, name: str) -> int:
    """Proto-EVFL's outputs are 84 wide unless told; split learning's follow the kind of rows."""
    return 64 if make is not image_table and name == "vanilla" else 84


@TABLES
@pytest.mark.parametrize("name", ["proto_evfl", "layers", "vanilla"])
def test_a_party_rebuilt_between_any_two_messages_answers_the_same(name: str, make: Make) -> None:
    method, requests = talk_of(name, width_of(make, name))
    steady, rebuilt = Party(method, make(), key=7), Party(method, make(), key=7)
    for request in requests:
        expected = steady.handle(request)
        fresh = Party(method, make(), key=7)
        fresh.restore(rebuilt.state())
        rebuilt = fresh
        assert encode(rebuilt.handle(request)) == encode(expected)
    for tensor, other in zip(steady.state().values(), rebuilt.state().values(), strict=True):
        assert torch.equal(tensor, other)


def test_a_state_stays_as_it_was_while_the_party_goes_on() -> None:
    party = Party(SPLIT, image_table(), key=7)
    party.handle(backward(0, 168))
    state = party.state()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    expected = party.handle(backward(1, 168)), party.handle(Embed("query"))
    assert all(torch.equal(state[name], kept[name]) for name in kept)
    other = Party(SPLIT, image_table(), key=7)
    other.restore(state)
    assert [encode(other.handle(backward(1, 168))), encode(other.handle(Embed("query")))] == [
        *map(encode, expected)
    ]


def test_two_parties_restored_from_one_state_do_not_share_it() -> None:
    party = Party(SPLIT, image_table(), key=7)
    party.handle(backward(0, 168))
    party.memory["queue"] = torch.zeros(1, 3)
    state = party.state()
    first, second = (Party(SPLIT, image_table(), key=7) for _ in range(2))
    first.restore(state)
    second.restore(state)
    first.memory["queue"].add_(1)
    first.handle(backward(1, 168))
    assert second.memory["queue"].sum() == 0
    assert all(
        torch.equal(a, b) for a, b in zip(second.state().values(), state.values(), strict=True)
    )


def test_a_restored_party_that_was_not_asked_yet_has_the_whole_state() -> None:
    """The optimiser is rebuilt on first use; until then its part must not get lost."""
    party = Party(SPLIT, image_table(), key=7)
    party.handle(backward(0, 168))
    state = party.state()
    assert any(name.startswith("optimizer.") for name in state)
    other = Party(SPLIT, image_table(), key=7)
    other.restore(state)
    again = other.state()
    assert set(again) == set(state)
    assert all(torch.equal(again[name], state[name]) for name in state)


def test_a_state_of_another_network_is_refused() -> None:
    state = Party(SPLIT, image_table(side=4), key=7).state()
    with pytest.raises((RuntimeError, KeyError)):
        Party(SPLIT, image_table(side=8), key=7).restore(state)


def cohort(method: Method, make: Make, size: int) -> Cohort:
    rows = Rows.of([make(party=m) for m in range(size)], torch.device("cpu"))
    return Cohort(method, rows, keys(size))


def alone(method: Method, make: Make, member: int) -> Party:
    return Party(method, make(party=member), key=int(keys(member + 1)[member]))


@TABLES
@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("name", ["proto_evfl", "layers", "vanilla"])
def test_members_lent_out_and_put_back_answer_as_if_alone(name: str, make: Make) -> None:
    """Every request reaches some members only, in changing company; split learning has two networks
    a member."""
    method, requests = talk_of(name, width_of(make, name))
    group = cohort(method, make, 3)
    singles = [alone(method, make, m) for m in range(3)]
    for request in requests:
        for members in ([0, 2], [1]):
            part = group.take(members)
            replies = part.handle_all([request] * len(members))
            group.put(members, part)
            for m, reply in zip(members, replies, strict=True):
                close(reply, singles[m].handle(request))


def close(reply: Message, expected: Message) -> None:
    assert type(reply) is type(expected)
    if hasattr(expected, "values"):
        torch.testing.assert_close(values(reply), values(expected), atol=1e-6, rtol=0)
    if isinstance(reply, Learned) and isinstance(expected, Learned):
        torch.testing.assert_close(reply.prior, expected.prior, atol=1e-6, rtol=0)


def test_put_changes_the_members_lent_out_and_nobody_else() -> None:
    group = cohort(SPLIT, image_table, 3)
    group.memory["notes"] = torch.arange(6.0).view(3, 2)
    before = group.state()
    part = group.take([1])
    part.handle_all([backward(0, 168)])
    part.memory["notes"] += 10
    part.memory["new"] = torch.ones(1, 4)
    group.put([1], part)
    after = group.state()
    net = [name for name in before if name.startswith("net.")]
    for name in net:
        # two networks a member
        old, new = before[name].unflatten(0, (3, 2)), after[name].unflatten(0, (3, 2))
        assert torch.equal(old[[0, 2]], new[[0, 2]])
    assert any(not torch.equal(before[name], after[name]) for name in net)
    assert torch.equal(after["memory.notes"], torch.tensor([[0.0, 1.0], [12.0, 13.0], [4.0, 5.0]]))
    assert torch.equal(after["memory.new"], torch.tensor([[0.0], [1.0], [0.0]]).expand(3, 4))
    steps = after["optimizer.split.0.step"]
    assert steps.tolist() == [0, 1, 0]
    assert group.absent["memory.new"] == {0, 2}
    kinds = group.kinds()
    assert kinds[0] == kinds[2] != kinds[1]
    assert "new" not in group.take([0, 2]).memory
    assert "new" in group.take([1]).memory


def test_what_members_no_longer_hold_is_gone() -> None:
    group = cohort(SPLIT, image_table, 3)
    group.memory["notes"] = torch.ones(3, 2)
    for members, left in (([0], {0}), ([1, 2], set())):
        part = group.take(members)
        del part.memory["notes"]
        group.put(members, part)
        assert group.absent.get("memory.notes", set()) == left
    assert "notes" not in group.memory


def test_members_at_different_steps_are_of_different_kinds() -> None:
    group = cohort(SPLIT, image_table, 2)
    group.handle_all([backward(0, 168)] * 2)
    assert group.kinds()[0] == group.kinds()[1]
    part = group.take([1])
    part.handle_all([backward(1, 168)])
    group.put([1], part)
    assert group.kinds()[0] != group.kinds()[1]


@pytest.mark.usefixtures("doubles")
def test_a_whole_cohort_continues_after_parts_were_lent_out() -> None:
    group = cohort(SPLIT, image_table, 2)
    singles = [alone(SPLIT, image_table, m) for m in range(2)]
    for step in range(2):
        for m in range(2):
            part = group.take([m])
            part.handle_all([backward(step, 168)])
            group.put([m], part)
            singles[m].handle(backward(step, 168))
    group.handle_all([backward(2, 168)] * 2)
    for m, reply in enumerate(group.handle_all([Embed("query")] * 2)):
        singles[m].handle(backward(2, 168))
        close(reply, singles[m].handle(Embed("query")))


def test_one_member_that_breaks_does_not_touch_the_others() -> None:
    def trained(gradient: Tensor) -> Message:
        group = cohort(SPLIT, image_table, 2)
        good = backward(0, 168)
        group.handle_all([BackwardBatch(0, good.rows, gradient), good])
        return group.handle_all([Embed("query")] * 2)[1]

    zero = torch.zeros(6, 168)
    assert encode(trained(zero)) == encode(trained(zero + torch.nan))


def test_a_request_the_method_does_not_know_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="Learn"):
        Party(SPLIT, image_table(), key=7).handle(learn(0, 84))


def test_a_party_measures_what_a_reply_gives_away_of_each_column() -> None:
    rows = column_table(pool=60)
    table = replace(rows, aligned=rows.pool)
    party = Party(PROTO, table, key=1)
    features = party.handle(SendFeatures())
    names = [f"c{i}" for i in range(len(table.spans or ()))]
    scores = party.gives_away(SendFeatures(), features, names)
    assert list(scores) == names
    assert max(scores.values()) > 0.9
    nothing = Embeddings(torch.zeros_like(values(features)))
    assert max(party.gives_away(Embed("aligned"), nothing).values()) < 0.2
    both = party.gives_away(Embed("aligned"), nothing, earlier=[values(features)])
    assert max(both.values()) > 0.9
    assert party.gives_away(WarmUp(), Done()) == {}
