"""Attacks on the sealed level: labels by a party that makes its answers up, and by several together;
columns by an owner over many runs. The bound of randomised response holds whatever they do."""

import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.messages import OpenedSums, OpenLabels, SealedLabels, SealedSums
from protoevfl.privacy import bounds
from protoevfl.privacy import encrypted_sums as es
from protoevfl.privacy.defences.noise import SeededNoise
from protoevfl.privacy.policy import OwnerGuard, PrivacySettings, sum_sensitivity
from protoevfl.privacy.summed_rows import Scale

ROWS = 400


def guard(
    epsilon: float, labels: torch.Tensor, encrypt: bool = True, sigma: float | None = None
) -> OwnerGuard:
    settings = PrivacySettings(label_epsilon=epsilon, encrypt=encrypt, sum_noise=sigma)
    return OwnerGuard(settings, labels, 2, SeededNoise(4))


def request(labels: torch.Tensor) -> OpenLabels:
    return OpenLabels(torch.arange(len(labels)), labels, torch.ones(2))


def stolen_labels(owner: OwnerGuard, party: int, rows: list[int]) -> list[int]:
    """Labels by spikes: each row's ciphertext comes back as a "sum" of its own, so large that noise
    does not hide it, re-randomised so that the owner cannot tell."""
    sealed = owner.down(party, request(owner.labels))
    assert isinstance(sealed, SealedLabels)
    key = es.PublicKey(es.tensor_numbers(sealed.key[None])[0])
    numbers = es.tensor_numbers(sealed.labels[rows])
    large = es.MOST_NOISE << 2
    hidden = [pow(number, large, key.square) * key.encrypt(0) % key.square for number in numbers]
    opened = owner.received(party, SealedSums(es.numbers_tensor(hidden, es.CIPHER_BYTES)[None]))
    assert isinstance(opened, OpenedSums)
    shift = sum(es.HALF << es.SLOT * place for place in range(es.features_per_pack(2)))
    slots = [(number + shift) % key.n for number in es.tensor_numbers(opened.sums[0])]
    first = [slot % (1 << es.SLOT) - es.HALF for slot in slots]
    return [int(slot > large // 2) for slot in first]


def test_spikes_and_collusion_win_the_randomised_labels_and_no_more() -> None:
    """A made-up answer opens any row, so the proven bound is what protects; two parties together see
    the same draw and gain nothing."""
    pytest.importorskip("gmpy2")
    labels = torch.arange(20) % 2
    owner = guard(1.0, labels)
    rows = list(range(20))
    first, second = (stolen_labels(owner, party, rows) for party in (1, 2))
    assert first == second == owner.randomised.tolist()


def honest_sum(owner: OwnerGuard, party: int) -> tuple[torch.Tensor, SealedSums]:
    """What a party that counts the rows of class 1 reads, and what it sent for that."""
    sealed = owner.down(party, request(owner.labels))
    assert isinstance(sealed, SealedLabels)
    key = es.PublicKey(es.tensor_numbers(sealed.key[None])[0])
    rows = len(owner.labels)
    levels = torch.full((rows, 1), es.LARGEST)
    fold = torch.zeros(rows, dtype=torch.int64)
    sums, masks = es.sealed_sums(key, sealed.labels, levels, fold, 1, 2, lambda *_: None)
    opened = owner.received(party, SealedSums(sums))
    assert isinstance(opened, OpenedSums)
    largest = rows * es.LARGEST
    totals = torch.tensor([[largest]])
    return es.unmasked_sums(key, opened.sums, masks, totals, 2, largest), SealedSums(sums)


def test_a_sum_is_opened_once_with_noise_that_asking_again_does_not_change() -> None:
    """The same answer gives the same numbers; another one, with another mask, is not opened, nor by
    an owner that was started again with its ledger."""
    from protoevfl.messages import MessageError

    pytest.importorskip("gmpy2")
    owner = guard(500.0, torch.arange(20) % 2, sigma=2.0)
    read, sent = honest_sum(owner, 1)
    exact = 10 * es.LARGEST
    assert 0 < abs(int(read[0, 1, 0]) - exact) < 12 * 2 * es.LARGEST
    assert torch.equal(owner.received(1, sent).sums, owner.received(1, sent).sums)  # type: ignore[attr-defined]
    again = OwnerGuard(owner.settings, owner.labels, 2, owner.noise, owner.ledger)
    for started in (owner, again):
        with pytest.raises(MessageError, match="opened already"):
            honest_sum(started, 1)
    other, _ = honest_sum(owner, 2)
    assert not torch.equal(other, read), "another party gets another draw"
    (entry, _) = owner.ledger.entries
    assert (entry.party, entry.sigma) == (1, 2.0)
    assert entry.sensitivity == sum_sensitivity(2)


def test_without_noise_sums_are_exact_and_nothing_is_charged() -> None:
    pytest.importorskip("gmpy2")
    owner = guard(500.0, torch.arange(20) % 2, sigma=0.0)
    read, _ = honest_sum(owner, 1)
    assert read[0, :, 0].tolist() == [10 * es.LARGEST] * 2
    assert not owner.ledger.entries


def test_a_simulation_is_given_the_owner_s_own_noise() -> None:
    pytest.importorskip("gmpy2")
    encrypted = guard(500.0, torch.arange(20) % 2, sigma=2.0)
    read, _ = honest_sum(encrypted, 1)
    plain = guard(500.0, torch.arange(20) % 2, encrypt=False, sigma=2.0)
    told = plain.down(1, request(plain.labels))
    assert isinstance(told, OpenLabels)
    sums = torch.full((1, 2, 1), 10 * es.LARGEST)
    assert torch.equal(es.with_noise(sums, bytes.fromhex(told.noise), told.sigma), read)


def test_one_label_moves_what_is_summed_no_further_than_the_ledger_says() -> None:
    """The longest row of a party, from one class to another, with its count."""
    rows = torch.randn(300, 8, generator=torch.Generator().manual_seed(0)) ** 3
    levels = Scale.of(rows, sigma=1.0).levels(rows).double() / es.LARGEST
    longest = float(levels.norm(dim=1).max())
    assert 0.99 * sum_sensitivity(2) < longest <= sum_sensitivity(2)
    assert 2**0.5 * longest <= sum_sensitivity(3), "of three classes two sums move"


def test_noise_out_of_range_is_refused() -> None:
    for sigma in (-1.0, es.MOST_SIGMA + 1):
        with pytest.raises(UserError, match="sum_noise must lie"):
            PrivacySettings(sum_noise=sigma)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_randomised_labels_are_right_as_often_as_the_bound_says(epsilon: float) -> None:
    labels = torch.arange(20_000) % 2
    found = guard(epsilon, labels, encrypt=False).down(1, request(labels))
    assert isinstance(found, OpenLabels)
    right = float((found.labels == labels).double().mean())
    bound = bounds.randomised_response_guess(epsilon, 2)
    assert abs(right - bound) < 0.015  # four standard errors


def test_a_simulation_s_guard_never_lets_exact_labels_out() -> None:
    labels = torch.arange(ROWS) % 2
    owner = guard(1.0, labels, encrypt=False)
    assert not torch.equal(owner.down(1, request(labels)).labels, labels)  # type: ignore[attr-defined]
    assert torch.equal(owner.down(0, request(labels)).labels, labels)  # type: ignore[attr-defined]


def test_the_same_row_is_randomised_alike_for_everybody_and_in_every_fold() -> None:
    labels = torch.arange(ROWS) % 2
    owner = OwnerGuard(
        PrivacySettings(label_epsilon=1.0),
        labels[:300],
        2,
        SeededNoise(4),
        further=labels[300:],
    )
    some = torch.tensor([5, 7, 310, 399])
    asked = OpenLabels(some, labels[some], torch.ones(2))
    everything = owner.down(1, request(labels))
    assert torch.equal(owner.down(2, asked).labels, everything.labels[some])  # type: ignore[attr-defined]


def test_other_labels_never_meet_the_same_draw() -> None:
    """Two ciphertexts of one draw would show the difference of their labels."""
    pytest.importorskip("gmpy2")
    first, second = (guard(50.0, labels) for labels in (torch.tensor([0, 1]), torch.tensor([1, 1])))
    sealed = [g.down(1, request(g.labels)) for g in (first, second)]
    keys = [es.tensor_numbers(s.key[None])[0] for s in sealed]  # type: ignore[attr-defined]
    assert keys[0] != keys[1]


def test_a_class_with_few_rows_is_withheld() -> None:
    labels = torch.tensor([0] * 20 + [1] * 20 + [2] * 3)
    settings = PrivacySettings(min_class_count=5)
    owner = OwnerGuard(settings, labels, 3, SeededNoise(1))
    asked = OpenLabels(torch.arange(43), labels, torch.ones(3))
    assert owner.down(1, asked).present.tolist() == [1, 1, 0]  # type: ignore[attr-defined]


def test_answers_of_another_size_or_range_are_refused_by_the_owner() -> None:
    from protoevfl.messages import MessageError

    pytest.importorskip("gmpy2")
    owner = guard(1.0, torch.arange(4) % 2)
    owner.down(1, request(owner.labels))
    for shape in ((1, 1, 7), (1, 5000, es.CIPHER_BYTES)):
        with pytest.raises(MessageError, match="sealed sums must be"):
            owner.received(1, SealedSums(torch.zeros(shape, dtype=torch.uint8)))
    with pytest.raises(MessageError, match="outside the range"):
        owner.received(1, SealedSums(torch.zeros(1, 1, es.CIPHER_BYTES, dtype=torch.uint8)))
