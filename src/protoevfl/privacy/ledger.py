"""The privacy ledger: every release is entered before it leaves, and the run stops at its budget.

Two directions, accounted apart for every party:

    down, labels    one label of one aligned row is changed; the receiver is that party
    up, features    the columns of one row are replaced by any others; the receiver is the label owner

A release is a Gaussian of standard deviation sigma on something of the given sensitivity. Its name
makes it unique: the same release, repeated after a crash, is the same message and costs nothing
more. Epsilon comes from `dp-accounting` where it is installed (privacy loss distributions) and from
the closed form always; the two agree within 1 % (tests). Parties that pool what they received add
up: `coalition`.

A company keeps one ledger over all its runs (`run`, `names`, `total`): entries carry the run and the
partner's name, a run's own budget is held against its own entries, the total against all of them.

    >>> ledger = Ledger(epsilon=3.0, delta=1e-5)
    >>> ledger.charge("first", party=1, direction="down", sigma=4.0, sensitivity=2**0.5)
    >>> round(ledger.epsilon(1, "down"), 2)
    1.36
"""

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from protoevfl.errors import UserError
from protoevfl.privacy import bounds

Direction = Literal["down", "up"]
PROTECTS = {
    "down": "each label of an aligned row, against the party that receives the prototypes or, if it "
    "keeps to the protocol, the class sums of the sealed level (replace one label)",
    "up": "the columns behind each row's own numbers, against the label owner (replace one row; what "
    "training on the row changed in the network is not covered)",
}
LARGEST_CHECKED = 20.0  # mu above which privacy loss distributions are not worth computing


class BudgetError(UserError):
    """A release would pass its budget; the text tells both sides what both know."""


@dataclass(frozen=True)
class Entry:
    """One release to or from one party."""

    name: str
    party: int | str  # its number in the run; in a ledger over several runs its name
    direction: Direction
    sigma: float
    sensitivity: float
    run: str = ""

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
        *,
        run: str = "",
        names: Sequence[str] = (),
        total: float | None = None,
    ) -> None:
        """
        epsilon   budget of this run
        run       whose entries count against it
        names     of the parties by their number in this run, where `path` outlives it
        total     budget over all runs in the file
        """
        if not 0 < delta < 1:
            raise UserError(f"privacy.delta must lie between 0 and 1, not {delta}")
        self.epsilon_budget, self.delta, self.path = epsilon, delta, path
        self.run, self.names, self.total = run, tuple(names), total
        self.entries = _read(path) if path is not None and path.exists() else []

    def charge(
        self, name: str, *, party: int, direction: Direction, sigma: float, sensitivity: float
    ) -> None:
        """Enter a release about to leave; UserError if it would pass the budget. Durable when it
        returns."""
        entry = Entry(name, self._who(party), direction, sigma, sensitivity, self.run)
        with locked(self.path):  # another run of this company may be charging too
            if self.path is not None and self.path.exists():
                self.entries = _read(self.path)
            if any(_same(e, entry) for e in self.entries):
                return
            self._refuse_over_budget(entry)
            self.entries.append(entry)
            self._write()

    def _refuse_over_budget(self, entry: Entry) -> None:
        ever = [e for e in self.entries if (e.party, e.direction) == (entry.party, entry.direction)]
        this_run = [e for e in ever if e.run == self.run]
        budgets = (
            (self.epsilon_budget, this_run, "in this run"),
            (self.total, ever, "over all runs (max_epsilon in policy.toml)"),
        )
        for budget, before, where in budgets:
            if budget is None:
                continue
            after = self._cost([*before, entry])
            if after > budget:
                raise BudgetError(
                    f"privacy budget reached: party {entry.party}, {entry.direction}, has spent "
                    f"epsilon {self._cost(before):.2f} of {budget:g} {where} and this release would "
                    f"make it {after:.2f}; stop here, allow fewer releases (privacy.releases), or "
                    "add more noise"
                )

    def others(self, start: str, name: str, party: int) -> bool:
        """Whether this run holds another release to the party whose name begins so."""
        if self.path is not None and self.path.exists():
            self.entries = _read(self.path)
        names = {e.name for e in self._of((party,), "down") if e.name.startswith(start)}
        return bool(names - {name})

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
        """One line per party and direction, for records and reports."""
        both: tuple[Direction, ...] = ("down", "up")
        keys = [(p, d) for p in sorted(self._parties()) for d in both if self._of((p,), d)]
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

    def _who(self, party: int) -> int | str:
        return self.names[party] if self.names else party

    def _parties(self) -> list[int]:
        """Numbers of the parties of this run."""
        if self.names:
            return list(range(len(self.names)))
        return [e for e in {e.party for e in self.entries} if isinstance(e, int)]

    def _of(self, parties: tuple[int, ...], direction: Direction) -> list[Entry]:
        """The entries of this run."""
        who = {self._who(party) for party in parties}
        return [
            e
            for e in self.entries
            if e.party in who and e.direction == direction and e.run == self.run
        ]

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


@contextlib.contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """One process at a time between reading and writing the ledger `path`."""
    if path is None:
        yield
        return
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_suffix(".lock").open("a")
    except OSError as error:
        raise UserError(
            f"cannot write the privacy ledger {path}: {error.strerror}; nothing was sent"
        ) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _same(one: Entry, other: Entry) -> bool:
    """Whether two entries are the same release."""
    return (one.run, one.name, one.party, one.direction) == (
        other.run,
        other.name,
        other.party,
        other.direction,
    )


def accounted(entries: list[Entry], delta: float) -> float:
    """Epsilon by dp-accounting where it is installed and practical, else by the closed form."""
    total = _total(entries)
    if 0 < total <= LARGEST_CHECKED:
        epsilon = by_dp_accounting([e.mu for e in entries], delta)
        if epsilon is not None:
            return epsilon
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
