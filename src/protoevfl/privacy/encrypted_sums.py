"""Class sums under the label owner's key: neither side sees the other's rows, and the sums are exact.

    E(m) = (1 + n)^m r^n mod n^2         Paillier 1999; n of 2048 bits, r fresh for every row
    E(m)^a E(m')^a' = E(a m + a' m')     what a party can compute without the key

    owner   c_i = E(2^((z_i - 1) block)), z_i the class of row i; E(0) for class 0
    party   P   = prod_i c_i^(A_i) E(mask)       A_i = sum_j a_ij 2^(slot j), mask uniform in 0..n-1
    owner   D(P) = mask + sum_i A_i 2^((z_i - 1) block) mod n: uniform, whatever the rows are
            adds whole-number noise to every slot
    party   takes the mask off and reads sum_{i of class z} a_ij (+ noise) in slot j of block z - 1

Packing: a number a_ij lies in -LARGEST..LARGEST, a sum of at most MOST_ROWS of them and its noise
in -2^(SLOT - 1)..2^(SLOT - 1) - 1: read after 2^(SLOT - 1) was added to every slot. The classes'
blocks lie side by side and end below 2^(KEY_BITS - 1) <= n, so nothing carries over or wraps. One
ciphertext per row does for all classes, and one per pack of features comes back. Class 0 needs no
block: a party knows its own total.

Noise: a Gaussian of sigma LARGEST, rounded, in every slot that a party may use. The sums are whole,
so rounding is done to an exact Gaussian mechanism's release (post-processing). It is a function of
(secret, fold, pack, slot): whoever asks again gets the same noise, and averages nothing out.

What the party relies on: P is a uniform element of the whole group, so it tells the owner nothing,
whatever c_i were sent, if gcd(n, phi(n)) = 1. The owner proves that with n-th roots of numbers that
a hash of n chose (Goldberg, Reyzin, Sagga, Baldimtsi 2019: a false n without small factors passes
with probability below 2^-128), and the party checks it.

gmpy2 does the arithmetic and is imported late; `plain_sums` gives the same integers without it.
"""

import hashlib
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.messages import MessageError
from protoevfl.privacy.defences.noise import SecretNoise

KEY_BITS = 2048
NUMBER_BYTES = KEY_BITS // 8  # of a number modulo n
CIPHER_BYTES = 2 * NUMBER_BYTES  # of a number modulo n^2
LEVEL_BITS = 11  # of a quantised feature, its sign among them
LARGEST = (1 << LEVEL_BITS - 1) - 1
ROW_BITS = 17
MOST_ROWS = 1 << ROW_BITS
SLOT = LEVEL_BITS + ROW_BITS
HALF = 1 << SLOT - 1
MOST_NOISE = MOST_ROWS - 1  # in a slot: MOST_ROWS LARGEST + MOST_NOISE < HALF
MOST_SIGMA = 10.0  # 12 of them fit
ROOTS = 11  # of the proof: ROOTS log2(SMALL_PRIMES) > 128
SMALL_PRIMES = 6370
WINDOW = 4  # bits of an exponent that are handled together

Randomness = Callable[[str, int], bytes]  # (name, count) -> bytes, the same for the same name
Progress = Callable[[str, int, int], None]


def features_per_pack(classes: int) -> int:
    """How many features' sums one ciphertext carries.

    >>> features_per_pack(2), features_per_pack(10)
    (73, 8)
    """
    count = (KEY_BITS - 1) // (SLOT * (classes - 1))
    if not count:
        most = (KEY_BITS - 1) // SLOT + 1
        raise UserError(
            f"sealed sums hold at most {most} classes, not {classes}; merge rare classes, or use "
            "the open level"
        )
    return count


def packs(features: int, classes: int) -> int:
    return math.ceil(features / features_per_pack(classes))


def plain_sums(levels: Tensor, labels: Tensor, fold: Tensor, folds: int, classes: int) -> Tensor:
    """Sums (folds, classes, d) of levels (n, d) int64 by fold (n,) and label (n,): the reference."""
    place = fold * classes + labels
    sums = levels.new_zeros(folds * classes, levels.shape[1])
    return sums.index_add(0, place, levels).view(folds, classes, -1)


# ---------------------------------------------------------------- noise


def slot_noise(secret: bytes, sigma: float, fold: int, pack: int, classes: int) -> Tensor:
    """Whole numbers (classes - 1, features of a pack) that are added to its slots."""
    per = features_per_pack(classes)
    drawn = SecretNoise(secret)(f"{fold}/{pack}", (classes - 1, per))
    return (drawn * sigma * LARGEST).round().clamp(-MOST_NOISE, MOST_NOISE).long()


def with_noise(sums: Tensor, secret: bytes, sigma: float) -> Tensor:
    """Plain sums (folds, classes, d) as they are read after the owner has added its noise."""
    folds, classes, features = sums.shape
    noisy = sums.clone()
    for k in range(folds):
        drawn = [
            slot_noise(secret, sigma, k, pack, classes) for pack in range(packs(features, classes))
        ]
        noisy[k, 1:] += torch.cat(drawn, 1)[:, :features].to(sums)
    noisy[:, 0] = sums.sum(1) - noisy[:, 1:].sum(1)  # from the total, which the party knows
    return noisy


def add_noise(plain: int, noise: Tensor) -> int:
    """A decrypted pack with noise (classes - 1, features of a pack) in its slots."""
    slots = enumerate(noise.flatten().tolist())
    total: int = plain + sum(number << SLOT * place for place, number in slots)
    return total


# ---------------------------------------------------------------- the owner's key


@dataclass(frozen=True)
class PublicKey:
    n: int

    @cached_property
    def square(self) -> int:
        return self.n * self.n

    def challenges(self) -> list[int]:
        """Numbers modulo n that a hash of n chooses."""
        name = b"protoevfl sealed key" + as_bytes(self.n, NUMBER_BYTES)
        draws = (
            hashlib.shake_256(name + bytes([i])).digest(NUMBER_BYTES + 16) for i in range(ROOTS)
        )
        return [int.from_bytes(draw, "big") % self.n for draw in draws]

    def check(self, roots: Sequence[int]) -> None:
        """Refuses a key of another size, or one without the proof that gcd(n, phi(n)) = 1."""
        gmpy2 = _gmpy2()
        if self.n.bit_length() != KEY_BITS or gmpy2.gcd(self.n, _small_primes()) != 1:
            raise MessageError(f"the key is not a product of two large primes of {KEY_BITS} bits")
        challenged = zip(roots, self.challenges(), strict=True)
        if not all(gmpy2.powmod(root, self.n, self.n) == goal for root, goal in challenged):
            raise MessageError("the key comes without a valid proof of its form")

    def encrypt(self, plain: int) -> int:
        """With fresh randomness of the operating system; for whoever has not the private key."""
        gmpy2 = _gmpy2()
        r = 0
        while gmpy2.gcd(r, self.n) != 1:
            r = secrets.randbelow(self.n)
        return int((1 + plain * self.n) * gmpy2.powmod(r, self.n, self.square) % self.square)

    def check_ciphertexts(self, ciphertexts: Sequence[int]) -> None:
        gmpy2 = _gmpy2()
        product = gmpy2.mpz(1)
        for c in ciphertexts:
            if not 0 < c < self.square:
                raise MessageError("a ciphertext lies outside the range of its key")
            product = product * c % self.n
        if gmpy2.gcd(product, self.n) != 1:
            raise MessageError("a ciphertext shares a factor with its key")


@dataclass(frozen=True, repr=False)
class PrivateKey:
    """p and q; everything is computed modulo their squares and put together."""

    p: int
    q: int

    @classmethod
    def draw(cls, randomness: Randomness) -> "PrivateKey":
        """Two primes of half the bits each, so that neither divides the other less one."""
        p = _prime(randomness, "p")
        q = _prime(randomness, "q")
        assert p != q
        return cls(p, q)

    @cached_property
    def public(self) -> PublicKey:
        return PublicKey(self.p * self.q)

    def proof(self) -> list[int]:
        """n-th roots of the challenges; they exist, and only one each, if gcd(n, phi(n)) = 1."""
        gmpy2 = _gmpy2()
        n = self.public.n
        exponent = gmpy2.invert(n, (self.p - 1) * (self.q - 1))
        return [int(gmpy2.powmod(goal, exponent, n)) for goal in self.public.challenges()]

    def encrypt(self, plain: int, randomness: bytes) -> int:
        """(1 + n)^plain r^n, where r^n is drawn as a p-th power modulo p^2 and a q-th power modulo
        q^2: the same distribution at a quarter of the time."""
        gmpy2 = _gmpy2()
        half = len(randomness) // 2
        n, square = self.public.n, self.public.square
        parts = []
        for prime, draw in ((self.p, randomness[:half]), (self.q, randomness[half:])):
            base = 1 + int.from_bytes(draw, "big") % (prime - 1)
            parts.append(gmpy2.powmod(base, prime, prime * prime))
        residue = self._together(parts[0], parts[1], self.p**2, self.q**2)
        return int((1 + plain * n) * residue % square)

    def decrypt(self, c: int) -> int:
        gmpy2 = _gmpy2()
        parts = []
        for prime, other in ((self.p, self.q), (self.q, self.p)):
            power = gmpy2.powmod(c, prime - 1, prime * prime)
            # (1 + n)^(prime - 1) = 1 + (prime - 1) n, and its factor of prime is -other
            parts.append((power - 1) // prime * gmpy2.invert(-other, prime) % prime)
        return int(self._together(parts[0], parts[1], self.p, self.q))

    @staticmethod
    def _together(a: Any, b: Any, p: Any, q: Any) -> Any:
        """The number that is a modulo p and b modulo q."""
        return a + p * ((b - a) * _gmpy2().invert(p, q) % q)


def seal_labels(key: PrivateKey, labels: Tensor, classes: int, randomness: Randomness) -> Tensor:
    """Encrypted classes (n, CIPHER_BYTES) of labels (n,); `randomness` must depend on the labels,
    because the same draw under two different labels would show their difference."""
    block = SLOT * features_per_pack(classes)
    sealed = []
    for i, label in enumerate(labels.tolist()):
        plain = 1 << (label - 1) * block if label else 0
        sealed.append(key.encrypt(plain, randomness(f"row/{i}", NUMBER_BYTES + 32)))
    return numbers_tensor(sealed, CIPHER_BYTES)


# ---------------------------------------------------------------- the party


def sealed_sums(
    key: PublicKey,
    ciphertexts: Tensor,
    levels: Tensor,
    fold: Tensor,
    folds: int,
    classes: int,
    progress: Progress,
) -> tuple[Tensor, Tensor]:
    """Masked sums (folds, packs, CIPHER_BYTES) and the masks (folds, packs, NUMBER_BYTES).

    ciphertexts   (n, CIPHER_BYTES) of the rows' classes
    levels        (n, d) int64, -LARGEST..LARGEST
    """
    if len(levels) > MOST_ROWS or int(levels.abs().max()) > LARGEST:
        raise UserError(
            f"sealed sums take at most {MOST_ROWS:,} shared rows of {LEVEL_BITS}-bit numbers"
        )
    numbers = tensor_numbers(ciphertexts)
    key.check_ciphertexts(numbers)
    per = features_per_pack(classes)
    masked, masks = [], []
    for k in range(folds):
        rows = (fold == k).nonzero()[:, 0].tolist()
        bases = [numbers[i] for i in rows]
        for start in range(0, levels.shape[1], per):
            progress("sums under encryption", k * levels.shape[1] + start, folds * levels.shape[1])
            columns = levels[rows, start : start + per].T.tolist()
            product = _signed_product(bases, columns, key.square)
            mask = secrets.randbelow(key.n)
            masked.append(int(product * key.encrypt(mask) % key.square))
            masks.append(mask)
    shape = (folds, packs(levels.shape[1], classes), -1)
    return (
        numbers_tensor(masked, CIPHER_BYTES).view(shape),
        numbers_tensor(masks, NUMBER_BYTES).view(shape),
    )


def unmasked_sums(
    key: PublicKey, opened: Tensor, masks: Tensor, totals: Tensor, classes: int, largest: int
) -> Tensor:
    """Sums (folds, classes, d) int64 from what the owner decrypted; MessageError where no labels
    could give them.

    opened, masks   (folds, packs, NUMBER_BYTES)
    totals          (folds, d) over all classes
    largest         that a sum can be without noise
    """
    per = features_per_pack(classes)
    slots = (classes - 1) * per
    shift = sum(HALF << SLOT * place for place in range(slots))
    sums = totals.new_zeros(len(totals), classes - 1, len(opened[0]) * per)
    for k in range(len(opened)):
        numbers = zip(tensor_numbers(opened[k]), tensor_numbers(masks[k]), strict=True)
        for pack, (number, mask) in enumerate(numbers):
            if number >= key.n:
                raise MessageError("an opened sum lies outside the range of its key")
            packed = (number - mask + shift) % key.n
            read = [(packed >> place * SLOT & (1 << SLOT) - 1) - HALF for place in range(slots)]
            if packed >> slots * SLOT or max(map(abs, read)) > largest + MOST_NOISE:
                raise MessageError("opened sums that no labels could give")
            sums[k, :, pack * per : (pack + 1) * per] = sums.new_tensor(read).view(-1, per)
    sums = sums[..., : totals.shape[1]]
    return torch.cat([(totals - sums.sum(1))[:, None], sums], 1)


def _signed_product(bases: Sequence[int], columns: Sequence[Sequence[int]], modulus: int) -> Any:
    """`_product` of columns in -LARGEST..LARGEST: of all exponents LARGEST higher, over the bases'
    product to the power of that."""
    gmpy2 = _gmpy2()
    raised = [[level + LARGEST for level in column] for column in columns]
    every = gmpy2.mpz(1)
    for base in bases:
        every = every * base % modulus
    excess = sum(LARGEST << SLOT * place for place in range(len(columns)))
    return _product(bases, raised, modulus) * gmpy2.powmod(every, -excess, modulus) % modulus


def _product(bases: Sequence[int], columns: Sequence[Sequence[int]], modulus: int) -> Any:
    """prod_i bases_i^(sum_j columns_ji 2^(SLOT j)) modulo `modulus`.

    Features come from the last slot down (Horner); within one, rows with equal digits share the
    work (Pippenger's buckets).
    """
    gmpy2 = _gmpy2()
    m = gmpy2.mpz(modulus)
    factors = [gmpy2.mpz(base) for base in bases]
    result = gmpy2.mpz(1)
    digits = range(WINDOW * ((LEVEL_BITS - 1) // WINDOW), -1, -WINDOW)
    for column in reversed(columns):
        for _ in range(SLOT - digits[0] - WINDOW):
            result = result * result % m
        for shift in digits:
            for _ in range(WINDOW):
                result = result * result % m
            result = result * _bucket_product(factors, column, shift, m) % m
    return result


def _bucket_product(factors: Sequence[Any], column: Sequence[int], shift: int, m: Any) -> Any:
    """prod_i factors_i^(digit of column_i at `shift`)."""
    buckets: list[Any] = [None] * (1 << WINDOW)
    for factor, level in zip(factors, column, strict=True):
        digit = level >> shift & (1 << WINDOW) - 1
        if digit:
            held = buckets[digit]
            buckets[digit] = factor if held is None else held * factor % m
    running = total = _gmpy2().mpz(1)
    for held in reversed(buckets[1:]):
        if held is not None:
            running = running * held % m
        total = total * running % m
    return total


# ---------------------------------------------------------------- numbers as tensors


def as_bytes(number: int, size: int) -> bytes:
    return int(number).to_bytes(size, "big")


def numbers_tensor(numbers: Sequence[int], size: int) -> Tensor:
    """(k, size) uint8, big-endian."""
    joined = bytearray(b"".join(as_bytes(number, size) for number in numbers))
    return torch.frombuffer(joined, dtype=torch.uint8).view(len(numbers), size)


def tensor_numbers(tensor: Tensor) -> list[int]:
    """The inverse."""
    return [int.from_bytes(line.tobytes(), "big") for line in tensor.cpu().contiguous().numpy()]


def _prime(randomness: Randomness, name: str) -> int:
    gmpy2 = _gmpy2()
    bits = KEY_BITS // 2
    attempt = 0
    while True:
        draw = int.from_bytes(randomness(f"prime/{name}/{attempt}", bits // 8), "big")
        # the two highest bits set: the product has all its bits; odd
        candidate = draw | 3 << bits - 2 | 1
        if gmpy2.is_prime(candidate, 40):
            return candidate
        attempt += 1


@lru_cache(1)
def _small_primes() -> Any:
    """The product of all primes below SMALL_PRIMES."""
    gmpy2 = _gmpy2()
    return gmpy2.primorial(SMALL_PRIMES)


def _gmpy2() -> Any:
    try:
        import gmpy2
    except ImportError:
        raise UserError(
            "sealed sums need gmpy2: pip install 'protoevfl[sealed]'; in a simulation the same "
            "sums come without encryption (privacy.encrypt = false)"
        ) from None
    return gmpy2
