"""A party's own rules for jobs, in `policy.toml` of its kit: what it takes part in is decided here
and nowhere else."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from protoevfl.deploy import bounds, probe
from protoevfl.deploy.row_ledger import Limits
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.method import Method
from protoevfl.privacy.policy import settings_from
from protoevfl.rules import NAMES, TEXT, Between
from protoevfl.settings.presets import build
from protoevfl.validation import checked, read_toml

TEMPLATE = """\
# Which jobs this party takes part in. A job that breaks a rule is refused, and the refusal is logged.
active = "{active}"                 # the only party that may lead jobs here
methods = ["proto_evfl", "probe"]   # probe sends made-up numbers, to try the connection
presets = ["default", "sealed"]     # sealed: only masked sums and coarse scores leave; alone, it is the safest
max_rounds = 200                    # most exchanges of one job
send = ["Done", "Embeddings", "Learned", "Statistics", "SealedSums"]   # message types that may leave this party
# Message types it answers. SendFeatures is asked of tables where the active party knows the label of all its rows; the
# answer tells it the columns of every shared row nearly exactly (privacy.md). Without it, such jobs are refused.
receive = ["WarmUp", "SendFeatures", "Embed", "Learn", "Describe", "SealedLabels", "OpenedSums"]
max_message_mb = 256
max_sends = 200                     # most times that numbers of one row go to the active party, over all runs
max_sends_per_run = 40              # most answers of one run that have something of rows in them
max_rebuilt = 1.0                   # most of a column that what leaves may give away: 0 nothing, 1 all; measured
                                    # before each reply, see gives_away.jsonl in the run's folder
max_statistics_per_run = 1          # most descriptions of the pool in one run
min_component_rows = 10             # fewest rows of the pool that one described mean is made of
max_query_rows = 10_000             # most rows to be predicted or measured in one run
max_ids = 10_000                    # most ids the active party may ask about in one alignment
min_ids = 10                        # fewest; party.toml's minimum says the fewest rows in common
max_alignments_per_day = 20
require_privacy = false             # true: everything that leaves is clipped and noisy, or the job is refused
max_epsilon = 8.0                   # largest privacy budget accepted; with require_privacy the most over all runs
allow_skip = true                   # may a run go on while this party is away?
approved_only = false               # true: only jobs whose digest is listed in `approved` (see `deploy review`)
approved = []

# May the active party ask for single rows at any time (`deploy serve`)? It learns of them what `deploy predict` would
# tell it, and this party learns which of its shared rows are scored, and when.
[serve]
allow = false
runs = []                           # training runs that may be served; empty: any
from_hour = 0                       # of this machine's day
to_hour = 24
requests_per_day = 10_000
rows_per_day = 100_000
rows_per_request = 1_000
cache_s = 0                         # how long the active party may keep an answer and use it again, seconds

# Settings that shape what leaves are accepted within bounds (docs/deployment.md); other bounds go here.
[settings]
# "warm.epochs" = [10, 100]         # from, to
# layers = ["output"]               # any of these
"""
# with clip and noise a guarantee covers these; class rates in Learned are withheld then
PROVEN = ("Done", "Embeddings", "Learned")


@dataclass(frozen=True)
class ServeRules:
    """[serve] of policy.toml: single rows at any time, `protoevfl deploy serve`."""

    allow: bool = False  # may the active party ask for single rows at any time?
    runs: NAMES = ()  # training runs that may be served; empty: any
    from_hour: Annotated[int, Between(0, 23)] = 0  # of this machine's day
    to_hour: Annotated[int, Between(1, 24)] = 24  # of this machine's day
    requests_per_day: Annotated[int, Between(0)] = 10_000  # over all runs
    rows_per_day: Annotated[int, Between(0)] = 100_000  # over all runs
    rows_per_request: Annotated[int, Between(1)] = 1_000
    # how long the active party may keep an answer and use it again
    cache_s: Annotated[float, Between(0, 1e9)] = 0.0

    def objections(self, base: str, hour: int) -> list[str]:
        """Why the run `base` is not served at this hour of the day."""
        rules = [
            (self.allow, "it does not serve single rows (allow under [serve] in its policy.toml)"),
            (not self.runs or base in self.runs, f"run {base} is not among those it serves"),
            (
                self.from_hour <= hour < self.to_hour,
                f"it serves from {self.from_hour} to {self.to_hour} o'clock",
            ),
        ]
        return [text for good, text in rules if not good]


@dataclass(frozen=True)
class Policy:
    """The rules; defaults are the strict end where there is one."""

    active: TEXT  # the only party that may lead jobs here
    methods: NAMES = ("proto_evfl", "probe")  # probe sends made-up numbers, to try the connection
    presets: NAMES = ("default", "sealed")  # of these methods
    max_rounds: Annotated[int, Between(0)] = 200  # most exchanges of one job
    # message types that may leave this party
    send: NAMES = ("Done", "Embeddings", "Learned", "Statistics", "SealedSums")
    # message types it answers; the answer to SendFeatures tells the columns of shared rows nearly
    # exactly
    receive: NAMES = (
        "WarmUp",
        "SendFeatures",
        "Embed",
        "Learn",
        "Describe",
        "SealedLabels",
        "OpenedSums",
    )
    max_message_mb: Annotated[int, Between(0)] = 256  # of one message
    max_sends: Annotated[int, Between(0)] = 200  # of numbers of one row to the active party, ever
    # most answers of a run with something of rows in them
    max_sends_per_run: Annotated[int, Between(0)] = 40
    max_statistics_per_run: Annotated[int, Between(0)] = 1  # most descriptions of the pool
    # fewest rows of the pool that one described mean is made of
    min_component_rows: Annotated[int, Between(1)] = 10
    # most that what leaves may give away of a column, by the party's own measurement: 0 to 1 (no
    # bound)
    max_rebuilt: Annotated[float, Between(0, 1)] = 1.0
    max_query_rows: Annotated[int, Between(0)] = 10_000  # most rows to be predicted or measured
    max_ids: Annotated[int, Between(0)] = 10_000  # most ids asked about in one alignment
    min_ids: Annotated[int, Between(1)] = 10  # fewest ids asked about in one alignment
    max_alignments_per_day: Annotated[int, Between(0)] = 20  # with the active party
    # true: what leaves is clipped and noisy, or the job is refused
    require_privacy: bool = False
    # largest privacy budget accepted; with require_privacy the most over all runs
    max_epsilon: Annotated[float, Between(0, 1e9)] = 8.0
    allow_skip: bool = True  # may a run go on while this party is away?
    approved_only: bool = False  # true: only jobs whose digest is listed in `approved`
    approved: NAMES = ()  # digests, as `deploy review` shows them
    serve: ServeRules = field(default_factory=ServeRules)  # may single rows be asked for any time?
    # bounds of a method's settings that differ from the delivered ones: [from, to] or texts
    settings: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, bound in self.settings.items():
            bounds.parsed(name, bound)

    @property
    def limits(self) -> Limits:
        """What the ledger holds this party to."""
        return Limits(
            sends=self.max_sends,
            sends_per_run=self.max_sends_per_run,
            statistics_per_run=self.max_statistics_per_run,
            ids=self.max_ids,
            least_ids=self.min_ids,
            alignments_per_day=self.max_alignments_per_day,
        )

    @classmethod
    def read(cls, path: Path) -> "Policy":
        return checked(cls, read_toml(path), str(path))

    def objections(self, spec: JobSpec) -> list[str]:
        """Why this party will not take part; empty when it will."""
        rules = [
            (
                spec.active == self.active,
                f"only {self.active} may lead jobs here, not {spec.active}",
            ),
            (
                spec.method in self.methods,
                f"method {spec.method} is not among {_names(self.methods)}",
            ),
            (
                spec.preset in self.presets,
                f"preset {spec.preset} is not among {_names(self.presets)}",
            ),
            (
                spec.rounds <= self.max_rounds,
                f"{spec.rounds} rounds, at most {self.max_rounds} accepted",
            ),
            (
                set(spec.up) <= set(self.send),
                f"it would send {_names(set(spec.up) - set(self.send))}",
            ),
            (
                set(spec.down) <= self._receives(spec),
                f"it would receive {_names(set(spec.down) - self._receives(spec))}",
            ),
            (
                spec.max_bytes <= self.max_message_mb << 20,
                f"messages above {self.max_message_mb} MB",
            ),
            (
                spec.epsilon is None or spec.epsilon <= self.max_epsilon,
                f"a budget above epsilon {self.max_epsilon:g}",
            ),
            (
                spec.on_party_loss != "skip" or self.allow_skip,
                "the run may go on without this party",
            ),
            (
                not self.approved_only or spec.digest() in self.approved,
                f"job {spec.digest()[:12]} is not yet approved",
            ),
        ]
        reasons = [text for good, text in rules if not good]
        if spec.task == "serve":
            reasons += self.serve.objections(spec.base, datetime.now().hour)
        return reasons + self._of_settings(spec) + self._of_privacy(spec)

    def _receives(self, spec: JobSpec) -> set[str]:
        """[serve] is what decides about requests for single rows."""
        return set(self.receive) | ({"EmbedAt"} if spec.task == "serve" else set())

    def _of_settings(self, spec: JobSpec) -> list[str]:
        """Settings out of bounds; a method or preset not accepted at all needs no second word."""
        if spec.method not in self.methods or spec.preset not in self.presets:
            return []
        if spec.preset == "sealed" and spec.settings.get("columns", "sealed") != "sealed":
            return ["the preset sealed with another level of columns"]
        try:
            return bounds.objections(method_of(spec), list(spec.settings), self.settings)
        except UserError as error:
            return [f"the job's settings cannot be used: {error}"]

    def _of_privacy(self, spec: JobSpec) -> list[str]:
        """With require_privacy: what would leave without a guarantee."""
        if not self.require_privacy or spec.method == probe.Probe.name:
            return []
        defences = settings_from(spec.privacy)
        unproven = sorted(set(spec.up) - set(PROVEN))
        rules = [
            (spec.epsilon is not None, "the job has no privacy budget"),
            (
                defences.clip is not None and defences.embedding_noise > 0,
                "what leaves would not be noisy: privacy.clip and privacy.embedding_noise are not "
                "both set",
            ),
            (
                not unproven,
                f"no proven guarantee covers {_names(unproven)} (for Statistics: "
                '"unseen.slot" = false)',
            ),
        ]
        return [text for good, text in rules if not good]


def method_of(spec: JobSpec, dataset: str = "table") -> Method:
    """The method of a job with all its settings; `dataset` picks the variant of its preset."""
    if spec.method == probe.Probe.name:
        return probe.make(spec.settings)
    return build(spec.method, spec.preset, dataset, spec.settings)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
