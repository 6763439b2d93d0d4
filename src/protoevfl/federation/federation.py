"""`Federation`: the one way to train and to predict, wherever the parties are.

    federation = simulate(method, runs, privacy)       # bench, own files, scikit-learn class, tune, audit
    federation = Federation([method], [owner], owner_border(engine, guard))      # between companies
    federation.train(observer)
    probabilities = federation.predict(present)        # any subset of parties

Several runs (seeds, folds) advance together, so that an engine can compute them as one batched
model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.federation.border import Border, simulated_border
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.engines.stacked import Stacked
from protoevfl.federation.lockstep import Engine, lockstep
from protoevfl.federation.middleware import QueryCache
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Party
from protoevfl.messages import Embed, Message, values
from protoevfl.method import Method
from protoevfl.observer import SILENT, Observer
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.rows.table import PartyTable

ENGINES = ("auto", "loop", "stacked")
Parties = InProcess | Stacked


@dataclass
class Federation:
    """Methods and owners, one per run, and the border behind which the parties are."""

    methods: Sequence[Method]
    owners: Sequence[LabelOwner]
    border: Border
    on_party_loss: str = "abort"
    parties: Parties | None = None  # a simulation can look inside
    cache: QueryCache = field(init=False)

    def __post_init__(self) -> None:
        self.cache = QueryCache(self.border.engine)

    def train(self, observer: Observer = SILENT) -> None:
        """Every method's `train`, to the end."""
        self.cache.clear()
        talks = {
            run: method.train(owner)
            for run, (method, owner) in enumerate(zip(self.methods, self.owners, strict=True))
        }
        lockstep(talks, self.border.engine, observer.report, self.on_party_loss)

    def predict(
        self,
        present: tuple[int, ...] | None = None,
        runs: Sequence[int] | None = None,
        observer: Observer = SILENT,
    ) -> list[Tensor]:
        """Class probabilities (n, Z) of the query rows, one tensor per run.

        present   the parties that take part; all of them unless given
        runs      which runs to ask; all of them unless given
        """
        numbers = range(len(self.owners)) if runs is None else runs
        talks = {
            run: self.methods[run].predict(
                self.owners[run], self.owners[run].parties if present is None else present
            )
            for run in numbers
        }
        answers = lockstep(talks, self.cache, observer.report, self.on_party_loss)
        return list(answers.values())

    def query_embeddings(self, run: int = 0) -> dict[int, Tensor]:
        """What each party sent (n, d) of the rows to be predicted; where losses are skipped, of
        those that answered."""
        requests = {(run, m): Embed("query") for m in self.owners[run].parties}
        embeddings = {}
        for (_, m), reply in self.cache.exchange(requests).items():
            if isinstance(reply, Message):
                embeddings[m] = values(reply)
            elif self.on_party_loss != "skip":
                raise UserError(f"party {m} did not answer: {reply.reason}")
        return embeddings

    def traffic(self, run: int = 0) -> dict[str, Any]:
        """Bytes over the border, exchanges, and the epsilon each party's messages spent (where
        noise is on)."""
        ledger = self.border.ledgers[run]
        return {
            "bytes": self.border.metered.ledger(run),
            "rounds": self.border.metered.rounds[run],
            "epsilon": ledger.summary(),
        }


@dataclass(frozen=True)
class SimulatedRun:
    """One run of a simulation: what each party holds, the owner, and the seed of everything
    random."""

    tables: Sequence[PartyTable]
    owner: LabelOwner
    seed: int


def simulate(
    methods: Method | Sequence[Method],
    runs: Sequence[SimulatedRun],
    privacy: PrivacySettings,
    *,
    engine: str = "auto",
    device: str = "cpu",
    observer: Observer = SILENT,
    record: bool = False,
    around: Callable[[Parties], Engine] = lambda parties: parties,
) -> Federation:
    """A federation whose parties are all in this process, behind the guards of `privacy`.

    methods    one for all runs, or one per run; the first is what the parties run
    engine     "stacked" computes parties and runs of equal shape as one model, "loop" one after the other
    observer   hears of the parties' own epochs
    record     keeps every message for an audit
    around     puts something between the parties and their guards
    """
    per_run = list(methods) if isinstance(methods, Sequence) else [methods] * len(runs)
    parties = parties_for(per_run[0], runs, engine, device, observer)
    owners = [run.owner for run in runs]
    border = simulated_border(around(parties), owners, [run.seed for run in runs], privacy, record)
    return Federation(per_run, owners, border, parties=parties)


def parties_for(
    method: Method,
    runs: Sequence[SimulatedRun],
    engine: str,
    device: str,
    observer: Observer = SILENT,
) -> Parties:
    """The engine with every run's parties, addressed by (run, party)."""
    tables = {(r, m): table for r, run in enumerate(runs) for m, table in enumerate(run.tables)}
    keys = {(r, m): party_key(runs[r].seed, m) for r, m in tables}
    if choose_engine(engine) == "stacked":
        stacked = Stacked(method, tables, keys, device)
        for _, cohort in stacked.members():
            cohort.progress = observer.progress
        return stacked
    return InProcess(
        {a: Party(method, t, keys[a], device, _named(observer, t.name)) for a, t in tables.items()}
    )


def party_key(seed: int, party: int) -> int:
    """The key of everything random at a party of a simulation."""
    return rnd.key(seed, "party", party)


def choose_engine(engine: str) -> str:
    """auto: stacked, which was nowhere measured to be slower (docs/performance.md)."""
    if engine not in ENGINES:
        raise UserError(f"unknown engine '{engine}'; there are {', '.join(ENGINES)}")
    return "stacked" if engine == "auto" else engine


def _named(observer: Observer, party: str) -> Callable[[str, int, int], None]:
    return lambda what, done, total: observer.progress(f"{party}: {what}", done, total)
