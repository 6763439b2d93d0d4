"""The specification of a job: everything the other side is told before it agrees to take part, and nothing else.

It names the method, its settings, the rounds, the message types in each direction and the privacy budget. It holds
no code, no path and no data; each party finds its own file in its own configuration.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from protoevfl.errors import UserError
from protoevfl.privacy.policy import settings_from

LOSS_POLICIES = ("wait", "skip", "abort")
TASKS = ("train", "predict")
_RUN = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_PARTY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True)
class JobSpec:
    """What is proposed to every party. The first party is the active one: it has the labels."""

    run: str
    parties: tuple[str, ...]
    method: str = "proto_evfl"
    preset: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)  # changes to the preset, plain values
    task: str = "train"
    seed: int = 0
    classes: int = 2
    rounds: int = 100  # most exchanges
    down: tuple[str, ...] = ()  # message types that go to a party
    up: tuple[str, ...] = ()  # message types that a party sends
    privacy: Mapping[str, Any] = field(default_factory=dict)  # defences and budget, see privacy/policy.py
    base: str = ""  # predict: the training run whose model is used
    on_party_loss: str = "wait"
    deadline_s: float = 600.0  # for one answer
    wait_s: float = 3600.0  # for a lost party to come back
    max_bytes: int = 256 << 20  # of one message

    @property
    def active(self) -> str:
        return self.parties[0]

    @property
    def epsilon(self) -> float | None:
        """The privacy budget; None is no guarantee."""
        value = self.privacy.get("epsilon")
        return None if value is None else float(value)

    def __post_init__(self) -> None:
        _require(_RUN.fullmatch(self.run) is not None, f"run name {self.run!r}: use small letters, digits and dashes")
        _require(len(self.parties) >= 2, "a job needs at least two parties, the active one first")
        _require(len(set(self.parties)) == len(self.parties), "a party is named twice")
        for name in self.parties:
            _require(_PARTY.fullmatch(name) is not None, f"party name {name!r}: use letters, digits, - and _")
        _require(self.task in TASKS, f"task must be one of {', '.join(TASKS)}")
        _require(self.on_party_loss in LOSS_POLICIES, f"on_party_loss must be one of {', '.join(LOSS_POLICIES)}")
        _require(self.deadline_s > 0 and self.wait_s >= 0, "deadline_s must be above 0, wait_s at least 0")
        _require(2 <= self.classes <= 1_000_000, "classes must be at least 2")
        _require(1 <= self.rounds <= 1_000_000, "rounds must lie in 1..1000000")
        _require(1 <= self.max_bytes <= 1 << 30, "max_bytes must lie in 1..2^30")
        _require((self.task == "predict") == bool(self.base), "a predict job names the run it predicts with: base")
        _require(not self.base or _RUN.fullmatch(self.base) is not None, f"run name {self.base!r} is not valid")
        _require(_plain(self.privacy), "privacy must be plain values")
        settings_from(self.privacy)
        _require(_plain(self.settings), "settings must be plain values: numbers, texts, true/false, lists of them")

    def to_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self), sort_keys=True))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "JobSpec":
        """The inverse of `to_dict`; unknown, missing or ill-typed entries are refused."""
        known = {f.name: f for f in fields(cls)}
        unknown = set(facts) - set(known)
        _require(not unknown, f"the job's specification has unknown entries: {', '.join(sorted(map(str, unknown)))}")
        _require({"run", "parties"} <= set(facts), "the job's specification must name run and parties")
        values = dict(facts)
        for name in ("parties", "down", "up"):
            if name in values:
                good = isinstance(values[name], list | tuple) and all(isinstance(v, str) for v in values[name])
                _require(good, f"{name} must be a list of names")
                values[name] = tuple(values[name])
        for name, kind in _KINDS.items():
            if name in values:
                good = isinstance(values[name], kind) and not (bool not in kind and isinstance(values[name], bool))
                _require(good, f"{name} of the job's specification has the wrong type")
        return cls(**values)

    def digest(self) -> str:
        """SHA-256 of the specification: the same at every party that was told the same."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def review(self) -> str:
        """The specification in words, for a person to accept or refuse."""
        budget = "none (what is spent has no limit)" if self.epsilon is None else f"epsilon {self.epsilon:g}"
        lines = {
            "run": f"{self.run} ({self.task}{' with ' + self.base if self.base else ''})",
            "active party": self.active,
            "other parties": ", ".join(self.parties[1:]),
            "method": f"{self.method}, preset {self.preset}",
            "settings": ", ".join(f"{k} = {v}" for k, v in self.settings.items()) or "as in the preset",
            "rounds": f"at most {self.rounds}",
            "you receive": ", ".join(self.down) or "nothing",
            "you send": ", ".join(self.up) or "nothing",
            "privacy": ", ".join(f"{k} = {v}" for k, v in self.privacy.items()) or "no defence",
            "privacy budget": budget,
            "a lost party": f"{self.on_party_loss}, {self.deadline_s:g} s an answer, {self.wait_s:g} s to come back",
            "digest": self.digest(),
        }
        return "\n".join(f"{name + ':':<16}{text}" for name, text in lines.items())


_KINDS: dict[str, tuple[type, ...]] = {
    "run": (str,), "method": (str,), "preset": (str,), "task": (str,), "on_party_loss": (str,), "settings": (dict,),
    "privacy": (dict,), "base": (str,),
    "seed": (int,), "classes": (int,), "rounds": (int,), "max_bytes": (int,), "deadline_s": (int, float),
    "wait_s": (int, float),
}  # fmt: skip


def _plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(_plain(v) for v in value)
    return value is None or isinstance(value, bool | int | float | str)


def _require(good: bool, text: str) -> None:
    if not good:
        raise UserError(text)
