"""A party's own rules for jobs, in `policy.toml` of its kit: what it takes part in is decided here
and nowhere else."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from protoevfl.deploy.spec import JobSpec
from protoevfl.validation import NAMES, TEXT, Between, checked, read_toml

TEMPLATE = """\
# Which jobs this party takes part in. A job that breaks a rule is refused, and the refusal is logged.
active = "{active}"                 # the only party that may lead jobs here
methods = ["proto_evfl", "probe"]   # probe sends made-up numbers, to try the connection
presets = ["default"]
max_rounds = 200                    # most exchanges of one job
send = ["Done", "Embeddings", "Learned", "Statistics"]   # message types that may leave this party
# Message types it answers. SendFeatures is asked of tables where the active party knows the label of all its rows; the
# answer tells it the columns of every shared row nearly exactly (privacy.md). Without it, such jobs are refused.
receive = ["WarmUp", "SendFeatures", "Embed", "Learn", "Describe"]
max_message_mb = 256
require_privacy = false             # true: jobs without a privacy budget are refused
max_epsilon = 8.0                   # largest privacy budget accepted
allow_skip = true                   # may a run go on while this party is away?
approved_only = false               # true: only jobs whose digest is listed in `approved` (see `deploy review`)
approved = []
"""


@dataclass(frozen=True)
class Policy:
    """The rules; defaults are the strict end where there is one."""

    active: TEXT  # the only party that may lead jobs here
    methods: NAMES = ("proto_evfl", "probe")  # probe sends made-up numbers, to try the connection
    presets: NAMES = ("default",)  # of these methods
    max_rounds: Annotated[int, Between(0)] = 200  # most exchanges of one job
    # message types that may leave this party
    send: NAMES = ("Done", "Embeddings", "Learned", "Statistics")
    # the answer to SendFeatures tells the columns of shared rows nearly exactly
    # message types it answers
    receive: NAMES = ("WarmUp", "SendFeatures", "Embed", "Learn", "Describe")
    max_message_mb: Annotated[int, Between(0)] = 256  # of one message
    require_privacy: bool = False  # true: jobs without a privacy budget are refused
    max_epsilon: Annotated[float, Between(0, 1e9)] = 8.0  # largest privacy budget accepted
    allow_skip: bool = True  # may a run go on while this party is away?
    approved_only: bool = False  # true: only jobs whose digest is listed in `approved`
    approved: NAMES = ()  # digests, as `deploy review` shows them

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
                set(spec.down) <= set(self.receive),
                f"it would receive {_names(set(spec.down) - set(self.receive))}",
            ),
            (
                spec.max_bytes <= self.max_message_mb << 20,
                f"messages above {self.max_message_mb} MB",
            ),
            (spec.epsilon is not None or not self.require_privacy, "the job has no privacy budget"),
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
        return [text for good, text in rules if not good]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
