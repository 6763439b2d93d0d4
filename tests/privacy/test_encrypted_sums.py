"""Sums under encryption are the plain ones; a party's answer tells nothing; what is malformed is
refused."""

import hashlib

import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.messages import MessageError
from protoevfl.privacy import encrypted_sums as es

gmpy2 = pytest.importorskip("gmpy2")
FOLDS = 2
SECRET = b"noise of a test, 32 bytes long.."


def drawn(seed: str) -> es.Randomness:
    return lambda name, count: hashlib.shake_256(f"{seed}/{name}".encode()).digest(count)


def silent(phase: str, step: int, steps: int) -> None:
    """No progress."""


@pytest.fixture(scope="module")
def key() -> es.PrivateKey:
    return es.PrivateKey.draw(drawn("key"))


def opened(
    key: es.PrivateKey, sums: torch.Tensor, classes: int = 2, sigma: float = 0.0
) -> torch.Tensor:
    """What the owner returns."""
    plain = []
    for i, number in enumerate(es.tensor_numbers(sums.flatten(0, 1))):
        noise = es.slot_noise(SECRET, sigma, *divmod(i, sums.shape[1]), classes)
        plain.append(es.add_noise(key.decrypt(number), noise) % key.public.n)
    return es.numbers_tensor(plain, es.NUMBER_BYTES).view(*sums.shape[:2], -1)


@pytest.mark.parametrize("sigma", [0.0, es.MOST_SIGMA])
@pytest.mark.parametrize(("classes", "features"), [(2, 75), (3, 40), (10, 9)])
def test_sums_are_the_plain_ones_bit_for_bit_over_several_packs(
    key: es.PrivateKey, classes: int, features: int, sigma: float
) -> None:
    """Numbers of both signs, with noise and without."""
    source = torch.Generator().manual_seed(classes)
    labels = torch.randint(classes, (9,), generator=source)
    levels = torch.randint(-es.LARGEST, es.LARGEST + 1, (9, features), generator=source)
    levels[:, 0], levels[:, 1] = es.LARGEST, -es.LARGEST
    fold = torch.arange(9) % FOLDS
    assert es.packs(features, classes) == 2
    sealed = es.seal_labels(key, labels, classes, drawn("rows"))
    sums, masks = es.sealed_sums(key.public, sealed, levels, fold, FOLDS, classes, silent)
    totals = es.plain_sums(levels, torch.zeros_like(labels), fold, FOLDS, 1)[:, 0]
    answer = opened(key, sums, classes, sigma)
    found = es.unmasked_sums(key.public, answer, masks, totals, classes, 9 * es.LARGEST)
    plain = es.plain_sums(levels, labels, fold, FOLDS, classes)
    assert torch.equal(found, es.with_noise(plain, SECRET, sigma))
    assert torch.equal(found, plain) == (sigma == 0)


def test_noise_has_the_spread_it_promises_and_depends_on_secret_and_place_alone() -> None:
    drawn = torch.stack([es.slot_noise(SECRET, 2.0, 0, pack, 2) for pack in range(200)]).double()
    assert abs(float(drawn.std()) / (2 * es.LARGEST) - 1) < 0.03
    assert abs(float(drawn.mean())) < 0.05 * es.LARGEST
    again = [es.slot_noise(SECRET, 2.0, 0, pack, 2) for pack in (0, 0, 1)]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])
    assert not torch.equal(again[0], es.slot_noise(bytes(32), 2.0, 0, 0, 2))
    assert not torch.equal(again[0], es.slot_noise(SECRET, 2.0, 1, 0, 2))


def test_noise_of_a_class_is_taken_from_the_first_so_that_totals_stay_exact() -> None:
    sums = torch.randint(-1000, 1000, (1, 3, 5), generator=torch.Generator().manual_seed(0))
    noisy = es.with_noise(sums, SECRET, 2.0)
    assert torch.equal(noisy.sum(1), sums.sum(1))
    assert bool((noisy[:, 1:] != sums[:, 1:]).all())


def test_the_largest_sum_of_the_most_rows_stays_in_its_slot() -> None:
    assert es.MOST_ROWS * es.LARGEST + es.MOST_NOISE < es.HALF
    assert 12 * es.MOST_SIGMA * es.LARGEST < es.MOST_NOISE
    for classes in range(2, 74):
        bits = es.features_per_pack(classes) * (classes - 1) * es.SLOT
        assert bits <= es.KEY_BITS - 1, "below n, which has its highest bit set"
    with pytest.raises(UserError, match="at most 74 classes"):
        es.features_per_pack(75)


def test_a_ciphertext_and_an_answer_are_new_each_time(key: es.PrivateKey) -> None:
    """The owner sees mask + sum: with another mask another number, whatever the rows are."""
    labels = torch.tensor([0, 1, 1])
    sealed = es.seal_labels(key, labels, 2, drawn("rows"))
    assert len({bytes(row.numpy()) for row in sealed}) == 3
    levels = torch.zeros(3, 1, dtype=torch.int64)
    fold = torch.zeros(3, dtype=torch.int64)
    answers = [es.sealed_sums(key.public, sealed, levels, fold, 1, 2, silent) for _ in range(2)]
    seen = [es.tensor_numbers(opened(key, sums)[0])[0] for sums, _ in answers]
    masks = [es.tensor_numbers(mask[0])[0] for _, mask in answers]
    assert seen == masks, "sums of zero"
    assert seen[0] != seen[1]
    assert not torch.equal(answers[0][0], answers[1][0])


def test_a_key_is_drawn_again_from_the_same_secret_and_proves_its_form(key: es.PrivateKey) -> None:
    assert key.public.n.bit_length() == es.KEY_BITS
    assert key.public.n == es.PrivateKey.draw(drawn("key")).public.n
    key.public.check(key.proof())
    assert str(key.p) not in repr(key)


def test_keys_of_another_form_are_refused(key: es.PrivateKey) -> None:
    """With gcd(n, phi(n)) > 1 a party's answer would not be uniform."""
    proof = key.proof()
    with pytest.raises(MessageError, match="without a valid proof"):
        key.public.check([*proof[:-1], proof[-1] + 1])
    with pytest.raises(MessageError, match="product of two large primes"):
        es.PublicKey(key.public.n >> 1).check(proof)
    small = 3 * (key.public.n // 3)
    with pytest.raises(MessageError, match="product of two large primes"):
        es.PublicKey(small).check(proof)
    squared = es.PublicKey(key.p**2)  # p divides phi(p^2): most numbers have no root
    roots = [int(gmpy2.powmod(goal, key.q, squared.n)) for goal in squared.challenges()]
    with pytest.raises(MessageError, match="without a valid proof"):
        squared.check(roots)


@pytest.mark.parametrize("number", ["zero", "large", "factor"])
def test_ciphertexts_outside_the_group_are_refused(key: es.PrivateKey, number: str) -> None:
    bad = {"zero": 0, "large": key.public.square, "factor": key.p}[number]
    with pytest.raises(MessageError, match="ciphertext"):
        key.public.check_ciphertexts([5, bad])


def test_sums_that_no_labels_could_give_are_refused(key: es.PrivateKey) -> None:
    masks = es.numbers_tensor([7], es.NUMBER_BYTES)[None]
    totals = torch.tensor([[100, 3]])

    def read(number: int) -> torch.Tensor:
        answer = es.numbers_tensor([(7 + number) % key.public.n], es.NUMBER_BYTES)[None]
        return es.unmasked_sums(key.public, answer, masks, totals, 2, 100)

    assert read(60 - (2 << es.SLOT)).tolist() == [[[40, 5], [60, -2]]]
    most = 100 + es.MOST_NOISE
    assert int(read(most)[0, 1, 0]) == most
    # more than rows and noise can give, either way, in a slot of a feature or beyond the features
    for made_up in (most + 1, -most - 1, (most + 1) << 5 * es.SLOT, -1 << es.KEY_BITS - 2):
        with pytest.raises(MessageError, match="no labels could give"):
            read(made_up)
    beyond = es.numbers_tensor([key.public.n], es.NUMBER_BYTES)[None]
    with pytest.raises(MessageError, match="outside the range"):
        es.unmasked_sums(key.public, beyond, masks, totals, 2, 100)


def test_opened_with_another_key_sums_are_noise_that_is_refused(key: es.PrivateKey) -> None:
    other = es.PrivateKey.draw(drawn("another key"))
    sealed = es.seal_labels(key, torch.tensor([0, 1]), 2, drawn("rows"))
    levels = torch.ones(2, 1, dtype=torch.int64)
    sums, masks = es.sealed_sums(
        key.public, sealed, levels, torch.zeros(2, dtype=torch.int64), 1, 2, silent
    )
    with pytest.raises(MessageError):
        es.unmasked_sums(key.public, opened(other, sums), masks, torch.tensor([[2]]), 2, 2)


def test_levels_beyond_their_bits_are_refused(key: es.PrivateKey) -> None:
    sealed = es.seal_labels(key, torch.tensor([1]), 2, drawn("rows"))
    fold = torch.zeros(1, dtype=torch.int64)
    for level in (-es.LARGEST - 1, es.LARGEST + 1):
        with pytest.raises(UserError, match="11-bit numbers"):
            es.sealed_sums(key.public, sealed, torch.tensor([[level]]), fold, 1, 2, silent)
