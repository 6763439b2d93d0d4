"""Recordings: the same every time, whoever else is in the batch; what crossed is in them and
nothing of the answers."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from protoevfl.audit.record import (
    Recording,
    Warm,
    one_way_of,
    privacy_of,
    record,
    record_both,
    shuffle_labels,
)
from protoevfl.bench import world
from protoevfl.bench.world import RunConfig
from protoevfl.codec import payload_bytes
from protoevfl.errors import UserError
from protoevfl.messages import Learn, WarmUp
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.rows.dataset import Dataset
from protoevfl.rows.table import Further, OwnRows
from tests.tiny import owner as tiny_owner
from tests.tiny import short

ROWS, TRAIN, CLASSES = 120, 100, 3
GUARD = PrivacySettings(prototype_noise=4.0, releases=1)


def images() -> Dataset:
    """Three classes of 120 pictures in four quadrants."""
    labels = torch.arange(ROWS) % CLASSES
    noise = torch.randn(ROWS, 4, 4, 4, generator=torch.Generator().manual_seed(0))
    pixels = (40 * noise + 100 + 30 * labels[:, None, None, None]).clamp(0, 255).to(torch.uint8)
    return Dataset(
        "digits", ("a", "b", "c"), pixels, labels, torch.arange(TRAIN), torch.arange(TRAIN, ROWS)
    )


@pytest.fixture(scope="module", autouse=True)
def small_data() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "_dataset", lambda name: images())
        yield


def config(
    method: str = "proto_evfl", parties: int = 2, overrides: dict[str, Any] | None = None
) -> RunConfig:
    settings = {**short(method), **(overrides or {})}
    return RunConfig(method=method, aligned=12, pool=20, parties=parties, overrides=settings)


def made(some: RunConfig, seeds: list[int], **how: Any) -> list[Recording]:
    return record(some, seeds, device="cpu", **({"privacy": PrivacySettings()} | how))


@pytest.fixture(scope="module")
def pair(small_data: None) -> list[Recording]:
    return made(config(parties=3), [0, 1])


def tensors(one: Recording) -> list[torch.Tensor]:
    """Everything a recording holds in numbers, message by message."""
    messages = [message for _, request, reply in one.transcript for message in (request, reply)]
    sent = [
        t for message in messages for t in vars(message).values() if isinstance(t, torch.Tensor)
    ]
    return [*sent, *one.own.values(), *one.pool.values()]


def near(one: Recording, other: Recording) -> bool:
    """Equal but for the rounding of sums in another order, which training makes larger."""
    return all(
        torch.allclose(a, b, atol=1e-2) for a, b in zip(tensors(one), tensors(other), strict=True)
    )


def test_the_same_seed_gives_the_same_bits(pair: list[Recording]) -> None:
    again = made(config(parties=3), [0, 1])
    for one, other in zip(pair, again, strict=True):
        assert [(p, type(q), type(a)) for p, q, a in one.transcript] == [
            (p, type(q), type(a)) for p, q, a in other.transcript
        ]
        assert all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(other), strict=True))
        assert one.metrics == other.metrics
    assert not torch.equal(pair[0].own[1], pair[1].own[1])


def test_a_run_does_not_depend_on_the_others_of_its_batch(pair: list[Recording]) -> None:
    (alone,) = made(config(parties=3), [1])
    assert alone.seed == pair[1].seed == 1
    assert alone.world.split.hash == pair[1].world.split.hash
    assert near(alone, pair[1])
    assert not near(alone, pair[0])


def test_bytes_are_those_of_the_passive_parties_messages(pair: list[Recording]) -> None:
    for one in pair:
        passive = [(q, a) for p, q, a in one.transcript if p != 0]
        assert one.crossed["down"] == sum(payload_bytes(q) for q, _ in passive)
        assert one.crossed["up"] == sum(payload_bytes(a) for _, a in passive)
        assert one.exchanges == 2  # the warm-up and one round


def test_what_was_asked_to_predict_is_not_in_the_transcript(pair: list[Recording]) -> None:
    for one in pair:
        assert {type(q) for _, q, _ in one.transcript} == {WarmUp, Learn}
        assert 0 <= one.metrics["accuracy"] <= 1


def test_every_party_is_there_with_all_its_rows(pair: list[Recording]) -> None:
    for one in pair:
        assert set(one.own) == set(one.pool) == set(one.pseudo_labels) == {0, 1, 2}
        assert all(len(rows) == 12 for rows in one.own.values())
        assert all(len(rows) == 20 for rows in one.pool.values())
        assert all(0 <= rate <= 1 for rate in one.pseudo_labels.values())


def test_a_canary_has_the_same_labels_on_other_rows_and_no_answers(pair: list[Recording]) -> None:
    (canary,) = made(config(parties=3), [0], canary=True)
    true, mixed = pair[0].world.owner.labels, canary.world.owner.labels
    assert mixed.bincount().equal(true.bincount())
    assert not mixed.equal(true)
    assert canary.metrics == {}
    first = [
        next(a for p, q, a in one.transcript if p == 1 and isinstance(q, WarmUp))
        for one in (canary, pair[0])
    ]
    assert torch.allclose(first[0].values, first[1].values, atol=1e-4)  # type: ignore[attr-defined]


def test_runs_come_before_canaries_in_the_order_of_seeds() -> None:
    real, hidden = record_both(config(), [3, 1], canaries=2, device="cpu")
    assert [one.seed for one in real] == [3, 1]
    assert [one.seed for one in hidden] == [3, 1, 3, 1]
    assert all(one.metrics for one in real)
    assert not any(one.metrics for one in hidden)
    first, second = hidden[0].world.owner.labels, hidden[2].world.owner.labels
    assert not first.equal(second)


def test_given_settings_replace_those_of_the_preset_and_fill_the_ledger() -> None:
    (bare,), (guarded,) = made(config(), [0]), made(config(), [0], privacy=GUARD)
    assert bare.ledger.entries == []
    assert guarded.ledger.entries != []
    sent = [
        next(q for p, q, _ in one.transcript if p == 1 and isinstance(q, Learn))
        for one in (bare, guarded)
    ]
    noise = sent[1].prototypes - sent[0].prototypes
    assert noise.norm() > 0.1 * sent[0].prototypes.norm()


@pytest.mark.parametrize("method", ["proto_evfl", "ss_vfl_i", "vanilla"])
def test_a_shared_warm_up_changes_nothing(method: str) -> None:
    warm: Warm = {}
    alone = made(config(method), [0, 1])
    for _ in range(2):
        shared = made(config(method), [0, 1], warm=warm)
        for one, other in zip(alone, shared, strict=True):
            assert near(one, other)
    assert len(warm) == (1 if method == "proto_evfl" else 0)


def test_extractors_of_other_rows_or_settings_are_not_shared() -> None:
    warm: Warm = {}
    for some in (config(), config(parties=3), config(overrides={"warm.epochs": 2})):
        made(some, [0], warm=warm)
    assert len(warm) == 3


def test_a_method_that_sends_nothing_can_be_recorded() -> None:
    (one,) = made(config("local"), [0])
    assert (one.crossed["up"], one.crossed["down"], one.exchanges) == (0, 0, 0)
    assert {p for p, _, _ in one.transcript} == {0}
    assert one.pseudo_labels == {}


def test_the_upper_bound_has_nothing_to_attack() -> None:
    with pytest.raises(UserError, match="nothing crosses to be attacked; name another method"):
        made(config("upper_bound"), [0])


def test_one_way_keeps_rows_and_encoder_and_sends_nothing_made_of_labels() -> None:
    some = config(overrides={"rounds.count": 5, "privacy.rank": 2})
    silent = one_way_of(some)
    assert silent.split_spec() == some.split_spec()
    assert {name.split(".")[0] for name in silent.overrides} <= {"warm", "head", "layers"}
    assert silent.overrides["warm.epochs"] == some.overrides["warm.epochs"]
    assert one_way_of(config("vanilla")).overrides == {}
    assert made(silent, [0])[0].crossed["down"] == 0


def test_privacy_settings_are_told_apart_and_the_configuration_stays_as_it_is() -> None:
    some = config(overrides={"privacy.rank": 3, "privacy.audit": True})
    before = dict(some.overrides)
    plain, privacy = privacy_of(some)
    assert some.overrides == before
    assert plain.overrides == short("proto_evfl")
    assert privacy.rank == 3
    assert privacy_of(plain)[0] == plain


def test_a_canary_moves_every_label_the_owner_has_and_keeps_their_counts() -> None:
    owner = tiny_owner()
    shared, further, rest = len(owner.labels), 5, 40
    more = torch.arange(further + rest) % CLASSES
    more[-4:] = -1
    before = torch.cat([owner.labels, more])
    empty = torch.zeros(len(before), 2)
    owner.own = OwnRows(empty, before.clone(), empty[:0], shared + further)
    owner.further = Further(more[:further], torch.ones(2, further, dtype=torch.bool))
    shuffle_labels(owner, seed=0, number=1)
    after = owner.own.labels
    assert torch.equal(after[:shared], owner.labels)
    assert torch.equal(after[shared : shared + further], owner.further.labels)
    assert torch.equal(after[-4:], before[-4:])  # unknown stays unknown
    assert not torch.equal(after[:shared], before[:shared])
    assert not torch.equal(after[shared:-4], before[shared:-4])
    for part in (slice(0, shared), slice(shared, -4)):
        assert torch.equal(after[part].sort().values, before[part].sort().values)
