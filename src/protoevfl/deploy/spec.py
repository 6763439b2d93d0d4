"""The specification of a job: everything the other side is told before it agrees to take part, and
nothing else.

It names the method, its settings, the rounds, the message types in each direction and the privacy
budget. It holds no code, no path and no data; each party finds its own file in its own
configuration.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from protoevfl.deploy.kit import RUN, RUN_WORDS
from protoevfl.errors import UserError
from protoevfl.privacy.levels import LEVELS
from protoevfl.privacy.policy import settings_from
from protoevfl.rules import NAMES, Between, Listed, Matching, OneOf
from protoevfl.validation import checked

_PARTY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
COLUMNS = (
    "tables whose label owner uses all its labels: it can read every value of the shared rows "
    "nearly exactly; "
    "otherwise not sent as they are"
)
SEALED = (
    "sealed: sums of shared rows under encryption and your own mask, then one coarse score per class "
    "and row; your side measures first what the scores would give away of each column, and refuses "
    "above its bound"
)


@dataclass(frozen=True)
class JobSpec:
    """What is proposed to every party. The first party is the active one: it has the labels."""

    run: Annotated[str, Matching(f"^{RUN}$", RUN_WORDS)]  # a new name for every new run
    # the active one first
    parties: Annotated[tuple[str, ...], Listed("a list of at least two names", least=2)]
    method: str = "proto_evfl"  # or probe, which sends made-up numbers
    preset: str = "default"  # named settings of the method
    settings: Mapping[str, Any] = field(default_factory=dict)  # changes to the preset, plain values
    # predict, serve: with the model of `base`
    task: Annotated[str, OneOf(("train", "predict", "serve"))] = "train"
    seed: int = 0  # of demo rows; everything else starts from each party's own secret
    classes: Annotated[int, Between(2, 1_000_000)] = 2  # of the label
    rounds: Annotated[int, Between(1, 1_000_000)] = 100  # most exchanges
    down: NAMES = ()  # message types that go to a party; left out: those of the method
    up: NAMES = ()  # message types that a party sends; left out: those of the method
    # defences and budget, see `privacy` below
    privacy: Mapping[str, Any] = field(default_factory=dict)
    # predict, serve: the training run whose model is used
    base: Annotated[str, Matching(f"^({RUN})?$", RUN_WORDS)] = ""
    # what a lost party means for the run
    on_party_loss: Annotated[str, OneOf(("wait", "skip", "abort"))] = "wait"
    deadline_s: Annotated[float, Between(0.001, 1e9)] = 600.0  # for one answer
    wait_s: Annotated[float, Between(0, 1e9)] = 3600.0  # for a lost party to come back
    max_bytes: Annotated[int, Between(1, 1 << 30)] = 256 << 20  # of one message
    # serve: how long the active party would keep what a party sent; the party's policy may say less
    cache_s: Annotated[float, Between(0, 1e9)] = 0.0

    @property
    def active(self) -> str:
        return self.parties[0]

    @property
    def epsilon(self) -> float | None:
        """The privacy budget; None is no guarantee."""
        value = self.privacy.get("epsilon")
        return None if value is None else float(value)

    def __post_init__(self) -> None:
        for name in self.parties:
            if _PARTY.fullmatch(name) is None:
                raise UserError(f"party name {name!r}: use letters, digits, - and _")
        if (self.task == "train") == bool(self.base):
            raise UserError("a predict or serve job names the run it predicts with: base")
        settings_from(self.privacy)

    def to_dict(self) -> dict[str, Any]:
        facts = asdict(self)
        if self.task != "serve":  # digests of other jobs stay what they were
            del facts["cache_s"]
        return json.loads(json.dumps(facts, sort_keys=True))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "JobSpec":
        """The inverse of `to_dict`; unknown, missing or ill-typed entries are refused."""
        return checked(cls, facts, "the job's specification")

    def digest(self) -> str:
        """SHA-256 of the specification: the same at every party that was told the same."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def _columns(self) -> str:
        """What is sent of a row's columns, in words."""
        if "SealedLabels" in self.down:
            return SEALED
        level = str(self.settings.get("columns", "open"))
        if level != "open":
            return LEVELS.get(level, level)
        if self.task == "predict":
            return f"of new rows the same leaves as of the rows of run {self.base}: {COLUMNS}"
        return COLUMNS if "SendFeatures" in self.down else "not sent as they are"

    def review(self) -> str:
        """The specification in words, for a person to accept or refuse."""
        budget = (
            "none (what is spent has no limit)"
            if self.epsilon is None
            else f"epsilon {self.epsilon:g}"
        )
        lines = {
            "run": f"{self.run} ({self.task}{' with ' + self.base if self.base else ''})",
            "active party": self.active,
            "other parties": ", ".join(self.parties[1:]),
            "method": f"{self.method}, preset {self.preset}",
            "settings": ", ".join(f"{k} = {v}" for k, v in self.settings.items())
            or "as in the preset",
            "rounds": f"at most {self.rounds}"
            if self.task != "serve"
            else f"a standing service, until either side ends it; kept for {self.cache_s:g} s there",
            "you receive": ", ".join(self.down) or "nothing",
            "you send": ", ".join(self.up) or "nothing",
            "your columns": self._columns(),
            "privacy": ", ".join(f"{k} = {v}" for k, v in self.privacy.items()) or "no defence",
            "privacy budget": budget,
            "a lost party": f"{self.on_party_loss}, {self.deadline_s:g} s an answer, "
            f"{self.wait_s:g} s to come back",
            "digest": self.digest(),
        }
        return "\n".join(f"{name + ':':<16}{text}" for name, text in lines.items())
