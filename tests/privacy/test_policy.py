"""Guards: what leaves is made by the guard, once, recorded, and what a method wrote does not get
past it."""

import pytest
import torch

from protoevfl.codec import decode, encode
from protoevfl.errors import UserError
from protoevfl.messages import (
    BackwardBatch,
    Done,
    Embed,
    Embeddings,
    Learn,
    Learned,
    Parameters,
    Statistics,
    WarmUp,
)
from protoevfl.privacy.defences.noise import SecretNoise, SeededNoise
from protoevfl.privacy.ledger import Ledger
from protoevfl.privacy.policy import OwnerGuard, PartyGuard, PrivacySettings, settings_from

from .world import CLASSES, ROWS, WIDTH, embeddings

NOISY = PrivacySettings(prototype_noise=4.0, rank=8, releases=1)


def learn(round_: int = 0, value: float = 7.0) -> Learn:
    return Learn(
        round_,
        torch.full((CLASSES, WIDTH), value),
        torch.ones(CLASSES),
        torch.full((CLASSES,), 1 / CLASSES),
    )


def guard(settings: PrivacySettings, **more: object) -> OwnerGuard:
    f, labels = embeddings(0)
    made = OwnerGuard(settings, labels, CLASSES, **{"noise": SeededNoise(0), **more})  # type: ignore[arg-type]
    made.received(1, Embeddings(f))
    return made


def test_what_a_method_wrote_into_a_request_does_not_get_past_the_guard() -> None:
    one, other = guard(NOISY).down(1, learn(value=7.0)), guard(NOISY).down(1, learn(value=-3.0))
    assert isinstance(one, Learn)
    assert isinstance(other, Learn)
    assert torch.equal(one.prototypes, other.prototypes)
    assert not (one.prototypes == 7.0).any()


def test_later_rounds_repeat_the_last_release_and_cost_nothing() -> None:
    ledger = Ledger()
    g = guard(NOISY, ledger=ledger)
    first = g.down(1, learn(0))
    g.received(1, Learned(embeddings(5)[0], torch.full((CLASSES,), 0.2)))
    second = g.down(1, learn(1))
    assert isinstance(first, Learn)
    assert isinstance(second, Learn)
    assert torch.equal(first.prototypes, second.prototypes)
    assert len(ledger.entries) == 1


def test_class_rates_go_down_without_the_label_owner_s_own_estimate() -> None:
    """It is made with exact prototypes: noise on prototypes alone would leave that way open."""
    g, own = guard(NOISY), torch.full((CLASSES,), 0.0)
    own[0] = 1.0
    first = g.down(1, Learn(0, torch.ones(CLASSES, WIDTH), torch.ones(CLASSES), own))
    assert isinstance(first, Learn)
    assert torch.allclose(first.prior, torch.full((CLASSES,), 1 / CLASSES))
    one, two = (torch.arange(CLASSES).float() + shift for shift in (1, 3))
    for party, prior in ((0, own), (1, one), (2, two)):
        g.received(party, Learned(embeddings(5)[0], prior))
    second = g.down(
        1, Learn(1, torch.ones(CLASSES, WIDTH), torch.ones(CLASSES), (own + one + two) / 3)
    )
    assert isinstance(second, Learn)
    assert torch.allclose(second.prior, (one + two) / 2)
    plain = guard(PrivacySettings()).down(
        1, Learn(0, torch.ones(CLASSES, WIDTH), torch.ones(CLASSES), own)
    )
    assert isinstance(plain, Learn)
    assert torch.equal(plain.prior, own)


def test_fresh_releases_are_charged_each() -> None:
    ledger = Ledger()
    g = guard(PrivacySettings(prototype_noise=4.0), ledger=ledger)
    for t in range(3):
        g.down(1, learn(t))
        g.received(1, Embeddings(embeddings(10 + t)[0]))
    assert [e.party for e in ledger.entries] == [1, 1, 1]


def test_a_run_resumed_with_the_same_secret_repeats_its_messages_bit_for_bit() -> None:
    secret = SecretNoise(b"s" * 32)
    one, two = (
        guard(NOISY, noise=secret).down(1, learn()),
        guard(NOISY, noise=secret).down(1, learn()),
    )
    assert encode(one) == encode(two)
    assert encode(guard(NOISY, noise=SecretNoise()).down(1, learn())) != encode(one)


def test_a_guard_is_unpredictable_unless_told_otherwise() -> None:
    f, labels = embeddings(0)
    sent = []
    for _ in range(2):
        g = OwnerGuard(NOISY, labels, CLASSES)
        g.received(1, Embeddings(f))
        sent.append(encode(g.down(1, learn())))
    assert sent[0] != sent[1]


def test_different_data_never_meets_the_same_noise() -> None:
    """Else the difference of two releases would be free of noise."""
    names: list[str] = []

    class Listening(SeededNoise):
        def __call__(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
            names.append(name)
            return super().__call__(name, shape)

    f, labels = embeddings(0)
    for y in (labels, labels.roll(1)):
        g = OwnerGuard(NOISY, y, CLASSES, Listening(0))
        g.received(1, Embeddings(f))
        g.down(1, learn())
    assert len(set(names)) == 2


def test_the_active_party_and_messages_without_labels_pass_unchanged() -> None:
    g = guard(NOISY)
    for party, request in ((0, learn()), (1, WarmUp()), (1, Embed("query"))):
        assert g.down(party, request) is request


def test_gradients_are_refused_where_labels_are_guarded() -> None:
    message = BackwardBatch(0, torch.arange(2), torch.zeros(2, 3))
    with pytest.raises(UserError, match="gradients"):
        guard(NOISY).down(1, message)
    assert guard(PrivacySettings()).down(1, message) is message


def test_small_classes_are_withheld() -> None:
    f, labels = embeddings(0)
    labels = labels.clone()
    labels[labels == 2] = 3
    labels[:3] = 2
    for settings in (
        PrivacySettings(min_class_count=5),
        PrivacySettings(min_class_count=5, prototype_noise=4.0),
    ):
        g = OwnerGuard(settings, labels, CLASSES)
        g.received(1, Embeddings(f))
        sent = g.down(1, learn())
        assert isinstance(sent, Learn)
        assert sent.present.tolist() == [1, 1, 0, 1, 1]
        assert (sent.prototypes[2] == 0).all()
        decode(encode(sent))


def test_permuted_names_come_back_in_order() -> None:
    g = guard(PrivacySettings(permute_classes=True))
    prior = torch.arange(CLASSES).float()
    sent = g.down(1, Learn(0, torch.zeros(CLASSES, WIDTH), torch.ones(CLASSES), prior))
    assert isinstance(sent, Learn)
    assert sorted(sent.prior.tolist()) == prior.tolist() != sent.prior.tolist()
    back = g.received(1, Learned(embeddings(0)[0], sent.prior))
    assert isinstance(back, Learned)
    assert torch.equal(back.prior, prior)


def test_incoming_embeddings_are_clipped() -> None:
    g = guard(PrivacySettings(clip=1.0))
    reply = g.received(1, Embeddings(1e20 * torch.ones(ROWS, WIDTH)))
    assert isinstance(reply, Embeddings)
    assert torch.allclose(reply.values.norm(dim=1), torch.ones(ROWS))


def test_a_party_clips_adds_noise_and_keeps_account() -> None:
    ledger = Ledger()
    party = PartyGuard(PrivacySettings(clip=1.0, embedding_noise=0.1), 2, SeededNoise(3), ledger)
    sent = party.up(Embeddings(torch.zeros(500, 40)))
    assert isinstance(sent, Embeddings)
    assert abs(float(sent.values.std()) - 0.1) < 0.003
    assert ledger.entries[0].sensitivity == 2.0
    assert party.up(Learned(torch.full((2, 2), 9.0), torch.ones(3))).values.norm(dim=1).max() < 3  # type: ignore[attr-defined]


def test_randomised_response_acts_on_what_is_released_only() -> None:
    g = guard(PrivacySettings(label_epsilon=1.0))
    assert 0 < int((g.shared != g.labels).sum()) < ROWS
    assert torch.equal(g.labels, embeddings(0)[1])


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UserError, match=r"needs privacy\.clip"):
        PrivacySettings(embedding_noise=0.1)
    with pytest.raises(UserError, match="no setting 'nose'"):
        settings_from({"nose": 1})
    assert settings_from({"rank": 3}).rank == 3


def test_guess_bound_grows_with_releases_and_receivers_only() -> None:
    s = PrivacySettings(prototype_noise=4.0, releases=1)
    alone = s.guess_bound(200, 10, rounds=9)
    assert 0.1 < alone < 0.15
    assert alone < s.guess_bound(200, 10, rounds=9, receivers=3)
    assert alone < PrivacySettings(prototype_noise=4.0).guess_bound(200, 10, rounds=9)
    assert s.guess_bound(200, 10, rounds=0) == 0.1
    assert PrivacySettings().guess_bound(200, 10, rounds=1) == 1.0


STRICT = PrivacySettings(clip=1.0, embedding_noise=2.0)


def test_where_a_guarantee_is_required_nothing_leaves_without_one() -> None:
    party = PartyGuard(STRICT, 1, SeededNoise(3), strict=True)
    rates = torch.tensor([0.9, 0.1])
    sent = party.up(Learned(torch.zeros(4, 3), rates))
    assert isinstance(sent, Learned)
    assert sent.prior.tolist() == [0.5, 0.5]  # class rates of the pool are withheld
    assert isinstance(party.up(Done()), Done)
    statistics = Statistics(
        torch.zeros(1, 2, 3), torch.ones(1, 2, 3), torch.ones(1, 2) / 2, torch.zeros(1)
    )
    for reply in (statistics, Parameters(torch.zeros(3))):
        with pytest.raises(UserError, match=f"no proven guarantee covers {type(reply).__name__}"):
            party.up(reply)
    bare = PartyGuard(PrivacySettings(clip=1.0), 1, SeededNoise(3), strict=True)
    with pytest.raises(UserError, match="nothing leaves"):
        bare.up(Embeddings(torch.zeros(4, 3)))
    easy = PartyGuard(PrivacySettings(), 1, SeededNoise(3))
    assert easy.up(statistics) is statistics
