"""The privacy ledger: every release is entered before it leaves, and the run stops at its budget.

Two directions, accounted apart for every party:

    down, labels    one label of one aligned row is changed; the receiver is that party
    up, features    the columns of one row are replaced by any others; the receiver is the label owner

A release is a Gaussian of standard deviation sigma on something of the given sensitivity. Its name
makes it unique: the same release, repeated after a crash, is the same message and costs nothing
more. Epsilon comes from `dp-accounting` where it is installed (privacy loss distributions) and from
the closed form always; the two agree within 1 % (tests). Parties that pool what they received add
up: `coalition`.

    >>> ledger = Ledger(epsilon=3.0, delta=1e-5)
    >>> ledger.charge("first", party=1, direction="down", sigma=4.0, sensitivity=2**0.5)
    >>> round(ledger.epsilon(1, "down"), 2)
    1.36
"""

import json
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from protoevfl.errors import UserError
from protoevfl.privacy import bounds

Direction = Literal["down", "up"]
PROTECTS = {
    "down": "each label of an aligned row, against the party that receives the prototypes (replace "
    "one label)",
    "up": "the columns of each row, against the label owner (replace one row)",
}
LARGEST_CHECKED = 20.0  # mu above which privacy loss distributions are not worth computing


@dataclass(frozen=True)
class Entry:
    """One release to or from one party."""

    name: str
    party: int
    direction: Direction
    sigma: float
    sensitivity: float

    @property
    def mu(self) -> float:
        return bounds.mu(self.sigma, self.sensitivity)


@dataclass
class Ledger:
    """Entries, their cost, and a budget for each party and direction. With a path it survives the
    process."""

    epsilon_budget: float | None = None
    delta: float = 1e-5
    path: Path | None = None
    entries: list[Entry] = field(default_factory=list)

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float = 1e-5,
        path: Path | None = None,
    ) -> None:
        if not 0 < delta < 1:
            raise UserError(f"privacy.delta must lie between 0 and 1, not {delta}")
        self.epsilon_budget, self.delta, self.path = epsilon, delta, path
        self.entries = _read(path) if path is not None and path.exists() else []

    def charge(
        self, name: str, *, party: int, direction: Direction, sigma: float, sensitivity: float
    ) -> None:
        """Enter a release about to leave; UserError if it would pass the budget. Durable when it
        returns."""
        if any(
            e.name == name and e.party == party and e.direction == direction for e in self.entries
        ):
            return
        entry = Entry(name, party, direction, sigma, sensitivity)
        self._refuse_over_budget(entry)
        self.entries.append(entry)
        self._write()

    def _refuse_over_budget(self, entry: Entry) -> None:
        if self.epsilon_budget is None:
            return
        before = self._of((entry.party,), entry.direction)
        after = self._cost([*before, entry])
        if after > self.epsilon_budget:
            raise UserError(
                f"privacy budget reached: party {entry.party}, {entry.direction}, has spent "
                "epsilon "
                f"{self._cost(before):.2f} of {self.epsilon_budget:g} and this release would make "
                f"it {after:.2f}; stop "
                "here, allow fewer releases (privacy.releases), or add more noise"
            )

    def epsilon(self, party: int, direction: Direction) -> float:
        """What has been spent on this party in this direction, at the ledger's delta."""
        return self._cost(self._of((party,), direction))

    def coalition(self, parties: Iterable[int], direction: Direction = "down") -> float:
        """The same for parties that put together all they received."""
        return self._cost(self._of(tuple(parties), direction))

    def mu(self, parties: Iterable[int], direction: Direction = "down") -> float:
        """Total mu = sqrt(sum of squares)."""
        return _total(self._of(tuple(parties), direction))

    def summary(self) -> list[dict[str, object]]:
        """One line a party and direction, for records and reports."""
        keys = sorted({(e.party, e.direction) for e in self.entries})
        return [
            {
                "party": party,
                "direction": direction,
                "releases": len(self._of((party,), direction)),
                "epsilon": self.epsilon(party, direction),
                "delta": self.delta,
                "budget": self.epsilon_budget,
                "protects": PROTECTS[direction],
            }
            for party, direction in keys
        ]

    def _of(self, parties: tuple[int, ...], direction: Direction) -> list[Entry]:
        return [e for e in self.entries if e.party in parties and e.direction == direction]

    def _cost(self, entries: list[Entry]) -> float:
        return accounted(entries, self.delta)

    def _write(self) -> None:
        """Beside its place, synced, renamed: a crash leaves the old ledger or the new one."""
        if self.path is None:
            return
        facts = {"version": 1, "delta": self.delta, "entries": [asdict(e) for e in self.entries]}
        beside = self.path.with_suffix(".new")
        try:
            with open(beside, "w") as file:
                file.write(json.dumps(facts, indent=1))
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
        except OSError as error:
            raise UserError(
                f"cannot write the privacy ledger {self.path}: {error.strerror}; nothing was sent"
            ) from None


def accounted(entries: list[Entry], delta: float) -> float:
    """Epsilon by dp-accounting where it is installed and practical, else by the closed form."""
    total = _total(entries)
    if 0 < total <= LARGEST_CHECKED:
        found = by_dp_accounting([e.mu for e in entries], delta)
        if found is not None:
            return found
    return bounds.epsilon(total, delta)


def by_dp_accounting(mus: list[float], delta: float) -> float | None:
    """Epsilon of composed Gaussians by privacy loss distributions; None where dp-accounting is not
    installed."""
    try:
        import dp_accounting
        from dp_accounting import pld
    except ImportError:
        return None
    accountant = pld.PLDAccountant()
    for mu in set(mus):
        accountant.compose(dp_accounting.GaussianDpEvent(1 / mu), mus.count(mu))
    return float(accountant.get_epsilon(delta))


def _total(entries: list[Entry]) -> float:
    return math.sqrt(sum(e.mu**2 for e in entries))


def _read(path: Path) -> list[Entry]:
    try:
        facts = json.loads(path.read_text())
        entries = [Entry(**entry) for entry in facts["entries"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"the privacy ledger {path} cannot be read; without it nobody knows what was spent: "
            "restore it from a copy"
        ) from None
    return entries
