"""Privacy settings and the two guards that apply them where data leaves.

    OwnerGuard.down(party, request)      before a request leaves the label owner
    OwnerGuard.received(party, reply)    when a reply arrives there
    PartyGuard.up(reply)                 before a reply leaves a party

With noise or randomised response on, the owner's guard drops the prototypes a method wrote into a
request and puts its own release there, made of the embeddings that party last sent and of the
labels: nothing a method computes (adaptors, running sums) can carry label information past it. The
class rates of a request become the mean of those the passive parties sent: the active party's own
are made with exact prototypes, hence with labels. `federation/middleware.py: Defended` applies both
guards in a simulation; a deployment gives the owner's guard a secret key and a ledger file.
"""

import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.messages import (
    Done,
    Embeddings,
    Learn,
    Learned,
    Message,
    MessageError,
    OpenedSums,
    OpenLabels,
    SealedLabels,
    SealedSums,
)
from protoevfl.privacy import bounds, encrypted_sums
from protoevfl.privacy.defences.clip import clip
from protoevfl.privacy.defences.noise import Noise, SecretNoise, digest
from protoevfl.privacy.defences.randomised_response import randomise
from protoevfl.privacy.defences.release import SENSITIVITY, release
from protoevfl.privacy.defences.rewrite import permuted, rounded, unpermuted, without_small_classes
from protoevfl.privacy.ledger import Ledger
from protoevfl.privacy.summed_rows import COUNT
from protoevfl.validation import from_dotted

SEALED_EPSILON = 3.0  # of sealed labels where label_epsilon says nothing
SUM_NOISE = 1.5  # on sealed sums where sum_noise says nothing
# in the owner's memory: the labels noisy sums are made of; what they add to scores is taken off
SUMMED = "guard.summed"
MOST_SUMS = 4096  # ciphertexts in one answer: decrypting them takes a minute


@dataclass(frozen=True)
class PrivacySettings:
    """All defences; 0 or None turns one off. Recorded with every run."""

    clip: float | None = None  # norm of an embedding, at the party and again at the owner
    embedding_noise: float = 0.0  # standard deviation as a multiple of clip, added by the party
    # sigma of the Gaussian on class sums of unit rows: protects single labels
    prototype_noise: float = 0.0
    # the same as a share of the mean class size N/Z, the larger counts: blurs classes
    class_noise: float = 0.0
    rank: int = 16  # directions a noisy prototype has
    releases: int | None = None  # fresh prototypes a party gets; later rounds repeat the last ones
    # the paper's noise on prototypes as they are: no guarantee, for its tables
    prototype_kappa: float = 0.0
    label_epsilon: float | None = None  # randomised response on the labels prototypes are made of
    # on sums of sealed labels, in lengths of a row of norm 1; 1.5 unless set, images 0
    sum_noise: float | None = None
    # encrypt sealed labels in a simulation too: the same sums, slower; between companies always on
    encrypt: bool = False
    min_class_count: int = 0  # classes with fewer labels are not shown; 5 on own rows
    permute_classes: bool = False  # hide class names
    round_digits: int | None = None  # decimals of what goes down
    epsilon: float | None = None  # budget for each party and direction
    delta: float = 1e-5  # of the budget

    def __post_init__(self) -> None:
        if self.embedding_noise and self.clip is None:
            raise UserError(
                "privacy.embedding_noise needs privacy.clip: noise on unbounded embeddings "
                "protects nothing"
            )
        if (
            min(self.embedding_noise, self.prototype_noise, self.class_noise, self.prototype_kappa)
            < 0
            or self.rank < 1
        ):
            raise UserError("privacy: noise must not be negative and rank must be at least 1")
        for name in ("clip", "label_epsilon", "epsilon"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"privacy.{name} must be above 0, not {value!r}")
        if self.sum_noise is not None and not 0 <= self.sum_noise <= encrypted_sums.MOST_SIGMA:
            raise UserError(
                f"privacy.sum_noise must lie between 0 and {encrypted_sums.MOST_SIGMA:g}, not "
                f"{self.sum_noise!r}"
            )
        if not 0 < self.delta < 1:
            raise UserError(f"privacy.delta must lie between 0 and 1, not {self.delta!r}")

    @property
    def sealed_epsilon(self) -> float:
        """Of the labels that a sealed run encrypts: they are always randomised."""
        return self.label_epsilon or SEALED_EPSILON

    @property
    def sealed_noise(self) -> float:
        """Sigma of the noise on the sums of a sealed run."""
        return SUM_NOISE if self.sum_noise is None else self.sum_noise

    def sealed_bound(self, classes: int, receivers: int = 1) -> float:
        """The best possible rate of right guesses of one label by `receivers` parties that keep to the
        protocol, from what they got at the sealed level.

        >>> round(PrivacySettings().sealed_bound(2), 3), round(PrivacySettings().sealed_bound(2, 2), 3)
        (0.634, 0.686)
        """
        distance = bounds.mu(self.sealed_noise, sum_sensitivity(classes), receivers)
        # of two classes; more of them are no easier to tell apart
        by_noise = bounds.guess(distance / 2**0.5, classes)
        whatever = bounds.randomised_response_guess(self.sealed_epsilon, classes)
        return min(by_noise, whatever)

    @property
    def guards_labels(self) -> bool:
        """Whether prototypes are made by the guard under a promise."""
        return max(self.prototype_noise, self.class_noise) > 0 or self.label_epsilon is not None

    def sigma(self, rows: int, classes: int) -> float:
        """Standard deviation of the noise on class sums: max(prototype_noise, class_noise N/Z)."""
        return max(self.prototype_noise, self.class_noise * rows / classes)

    def guess_bound(self, rows: int, classes: int, rounds: int, receivers: int = 1) -> float:
        """The best possible rate of right guesses of one label by `receivers` parties together; 1
        without a promise.

        >>> round(PrivacySettings(prototype_noise=4.0, releases=1).guess_bound(200, 10, rounds=5), 3)
        0.144
        """
        if rounds == 0:
            return 1 / classes
        sent = rounds if self.releases is None else min(rounds, self.releases)
        by_noise = bounds.guess(
            bounds.mu(self.sigma(rows, classes), 1.0, sent * receivers), classes
        )
        if self.label_epsilon is None:
            return by_noise
        return min(by_noise, bounds.randomised_response_guess(self.label_epsilon, classes))


def sum_sensitivity(classes: int) -> float:
    """How far one label moves sums of rows of norm at most 1 and the class counts: of two classes
    the sums of one are released, of more those of all but the first."""
    row = math.hypot(1.0, COUNT / encrypted_sums.LARGEST)
    return row if classes == 2 else 2**0.5 * row


@dataclass
class OwnerGuard:
    """The label owner's side. `memory` holds what must outlive a message; give it the owner's
    own."""

    settings: PrivacySettings
    labels: Tensor
    classes: int
    noise: Noise = field(default_factory=SecretNoise)
    ledger: Ledger = field(default_factory=Ledger)
    memory: MutableMapping[str, Tensor] = field(default_factory=dict)
    active: int = 0  # this party sits with the owner: nothing leaves
    # (F,) of the rows shared with some of the others
    further: Tensor | None = None

    def __post_init__(self) -> None:
        epsilon = self.settings.label_epsilon
        every = self.labels if self.further is None else torch.cat([self.labels, self.further])
        # drawn once: a row says the same to all who have it; what is sealed is always randomised
        sealed_epsilon = self.settings.sealed_epsilon
        self.randomised = randomise(every, self.classes, sealed_epsilon, self.noise)
        if epsilon is not None:
            every = self.randomised
        self.shared = every[: len(self.labels)]
        self.order = self.noise.uniform(f"order/{self.classes}", self.classes).argsort()

    def down(self, party: int, request: Message) -> Message:
        """What may leave in place of the request."""
        if party == self.active:
            return request
        if type(request).kind == "gradients" and self.settings.guards_labels:
            raise UserError(
                "gradients are made of labels row by row and no defence covers them; use proto_evfl"
            )
        if isinstance(request, OpenLabels):
            return self._sealed(party, request)
        if not isinstance(request, Learn):
            return request
        return self._rewrite(
            self._release(party, request)
            if self.settings.guards_labels
            else self._noisy(party, request)
        )

    def received(self, party: int, reply: Message) -> Message:
        """The reply as the owner may use it: clipped, class numbers restored, remembered for the
        next release."""
        if isinstance(reply, SealedSums):
            return self._opened(party, reply)
        if party == self.active or not isinstance(reply, Embeddings | Learned):
            return reply
        if self.settings.clip is not None:
            reply = replace(reply, values=clip(reply.values, self.settings.clip))
        if isinstance(reply, Learned) and self.settings.permute_classes:
            reply = unpermuted(reply, self.order.to(reply.prior.device))
        if isinstance(reply, Learned):
            self.memory[f"guard.prior.{party}"] = reply.prior
        if len(reply.values) == len(self.labels):
            self.memory[f"guard.upload.{party}"] = reply.values
        return reply

    def _sealed(self, party: int, request: OpenLabels) -> SealedLabels | OpenLabels:
        """Randomised labels, encrypted unless a simulation does without; small classes withheld."""
        labels = self.randomised[request.rows]
        counts = torch.bincount(self.labels, minlength=self.classes).to(request.present)
        present = request.present * (counts >= max(1, self.settings.min_class_count))
        sigma = self.settings.sealed_noise
        if sigma:
            self.memory[SUMMED] = self.randomised
        if not self.settings.encrypt:
            secret = self._noise_secret(party).hex() if sigma else ""
            self._charge_sums(party, "plain")
            return replace(request, labels=labels, present=present, sigma=sigma, noise=secret)
        numbers = encrypted_sums.numbers_tensor
        size = encrypted_sums.NUMBER_BYTES
        return SealedLabels(
            sigma,
            numbers([self._private_key.public.n], size)[0],
            numbers(self._private_key.proof(), size),
            self._ciphertexts[request.rows.cpu()],
            present,
        )

    @cached_property
    def _private_key(self) -> encrypted_sums.PrivateKey:
        return encrypted_sums.PrivateKey.draw(self._key_bytes)

    @cached_property
    def _ciphertexts(self) -> Tensor:
        """All shared rows' classes, encrypted once: each other party gets those of its rows."""
        key, randomness = self._private_key, self._key_bytes
        return encrypted_sums.seal_labels(key, self.randomised, self.classes, randomness)

    def _key_bytes(self, name: str, count: int) -> bytes:
        """A resumed run repeats its key and ciphertexts; other labels get other ones."""
        return self.noise.raw(f"sealed/{digest(self.randomised)}/{name}", count)

    def _noise_secret(self, party: int) -> bytes:
        """Of the noise on a party's sums, whatever it asks and however often."""
        return self._key_bytes(f"noise/{party}", 32)

    def _charge_sums(self, party: int, answer: str) -> None:
        """One answer of each party is opened in a run; the same again is the same release."""
        if not self.settings.sealed_noise:
            return
        name = f"class sums/{digest(self.randomised)}"
        if self.ledger.others(f"{name}/", f"{name}/{answer}", party):
            raise MessageError("sums of this run's labels were opened already; that is done once")
        self.ledger.charge(
            f"{name}/{answer}",
            party=party,
            direction="down",
            sigma=self.settings.sealed_noise,
            sensitivity=sum_sensitivity(self.classes),
        )

    def _opened(self, party: int, reply: SealedSums) -> OpenedSums:
        """Decrypted, still under the party's mask, with noise. Whatever a party put there, it learns
        no more than the randomised labels."""
        folds, packs, width = reply.sums.shape
        if folds * packs > MOST_SUMS or width != encrypted_sums.CIPHER_BYTES:
            raise MessageError(
                f"sealed sums must be at most {MOST_SUMS} numbers of "
                f"{encrypted_sums.CIPHER_BYTES} bytes, not {folds * packs} of {width}"
            )
        numbers = encrypted_sums.tensor_numbers(reply.sums.flatten(0, 1))
        self._private_key.public.check_ciphertexts(numbers)
        self._charge_sums(party, digest(reply.sums))
        plain = [self._private_key.decrypt(number) for number in numbers]
        if sigma := self.settings.sealed_noise:
            secret, n = self._noise_secret(party), self._private_key.public.n
            for i, number in enumerate(plain):
                place = divmod(i, packs)  # fold, pack
                noise = encrypted_sums.slot_noise(secret, sigma, *place, self.classes)
                plain[i] = encrypted_sums.add_noise(number, noise) % n
        opened = encrypted_sums.numbers_tensor(plain, encrypted_sums.NUMBER_BYTES)
        return OpenedSums(opened.view(folds, packs, -1))

    def _release(self, party: int, request: Learn) -> Learn:
        count = self._count(party)
        request = replace(request, prior=self._prior(request.prior))
        if self.settings.releases is not None and count >= self.settings.releases:
            return replace(
                request,
                prototypes=self.memory[f"guard.release.{party}"],
                present=self._shown(request),
            )
        f = self.memory[f"guard.upload.{party}"][:, : request.prototypes.shape[1]]
        shown = self._shown(request)
        name = f"prototypes/{party}/{count}/{digest(f, self.shared, shown)}"
        sigma, rank = self.settings.sigma(len(self.labels), self.classes), self.settings.rank
        if sigma:
            self.ledger.charge(
                name, party=party, direction="down", sigma=sigma, sensitivity=SENSITIVITY
            )
        mu = release(
            f, self.shared.to(f.device), shown, self.noise, sigma=sigma, rank=rank, name=name
        )
        self.memory[f"guard.release.{party}"] = mu
        self.memory[f"guard.count.{party}"] = torch.tensor([count + 1])
        return replace(request, prototypes=mu, present=shown)

    def _noisy(self, party: int, request: Learn) -> Learn:
        if not self.settings.prototype_kappa:
            return request
        mu = request.prototypes
        noise = self.noise(f"kappa/{party}/{request.round}/{digest(mu)}", tuple(mu.shape)).to(mu)
        return replace(request, prototypes=mu + self.settings.prototype_kappa * noise)

    def _rewrite(self, request: Learn) -> Learn:
        s = self.settings
        if s.min_class_count:
            request = without_small_classes(request, self._counts(request), s.min_class_count)
        if s.round_digits is not None:
            request = rounded(request, s.round_digits)
        return (
            permuted(request, self.order.to(request.prior.device)) if s.permute_classes else request
        )

    def _prior(self, like: Tensor) -> Tensor:
        """Mean of the class rates that passive parties sent last; uniform before any did."""
        rates = [
            self.memory[name].to(like)
            for name in sorted(self.memory)
            if name.startswith("guard.prior.")
        ]
        return torch.stack(rates).mean(0) if rates else torch.full_like(like, 1 / self.classes)

    def _shown(self, request: Learn) -> Tensor:
        return request.present * (self._counts(request) >= max(1, self.settings.min_class_count))

    def _counts(self, request: Learn) -> Tensor:
        return torch.bincount(self.labels, minlength=self.classes).to(request.present)

    def _count(self, party: int) -> int:
        return int(self.memory.get(f"guard.count.{party}", torch.zeros(1)))


@dataclass
class PartyGuard:
    """A party's side: bounded, noisy embeddings."""

    settings: PrivacySettings
    party: int
    noise: Noise = field(default_factory=SecretNoise)
    ledger: Ledger = field(default_factory=Ledger)
    strict: bool = False  # nothing leaves that no guarantee covers

    def up(self, reply: Message) -> Message:
        """What may leave in place of the reply."""
        if self.strict:
            reply = self._proven(reply)
        if self.settings.clip is None or not isinstance(reply, Embeddings | Learned):
            return reply
        values, spread = (
            clip(reply.values, self.settings.clip),
            self.settings.embedding_noise * self.settings.clip,
        )
        if spread:
            name = f"embeddings/{self.party}/{digest(values)}"
            self.ledger.charge(
                name,
                party=self.party,
                direction="up",
                sigma=spread,
                sensitivity=2 * self.settings.clip,
            )
            values = values + spread * self.noise(name, tuple(values.shape)).to(values)
        return replace(reply, values=values)

    def _proven(self, reply: Message) -> Message:
        """The reply without what clip and noise do not cover; UserError where nothing would be
        left."""
        if not isinstance(reply, Done | Embeddings | Learned):
            raise UserError(f"no proven guarantee covers {type(reply).__name__}: it does not leave")
        if not isinstance(reply, Done) and not self.settings.embedding_noise:
            raise UserError("without privacy.clip and privacy.embedding_noise nothing leaves")
        if isinstance(reply, Learned):  # class rates are estimated from all rows of the pool
            return replace(reply, prior=torch.full_like(reply.prior, 1 / len(reply.prior)))
        return reply


def split_overrides(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the method's own settings, those of privacy) of a preset or of overrides, dotted names.

    >>> split_overrides({"rounds.count": 1, "privacy.rank": 8})
    ({'rounds.count': 1}, {'rank': 8})
    """
    own = {name: value for name, value in values.items() if not name.startswith("privacy.")}
    return own, {n.removeprefix("privacy."): v for n, v in values.items() if n not in own}


def settings_from(facts: Mapping[str, Any]) -> PrivacySettings:
    """Settings from plain names and values, as in a record or a specification."""
    return from_dotted(PrivacySettings, facts, "privacy")
