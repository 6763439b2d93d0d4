"""A party that speaks bytes: the last place that what leaves a company passes.

bytes -> decode -> the party's answer -> guard (clip, noise) -> self-audit -> ledger -> bytes
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from protoevfl.codec import decode, encode
from protoevfl.deploy.account import Account
from protoevfl.deploy.bounds import FIRST
from protoevfl.deploy.row_ledger import LimitError
from protoevfl.deploy.self_audit import SelfAudit
from protoevfl.federation.party import Party
from protoevfl.messages import Describe, Embeddings, Message, MessageError, WarmUp
from protoevfl.methods.sealed import has_scores
from protoevfl.privacy.policy import PartyGuard

BEGUN = "begun"  # in a party's memory: it has learnt
FEATURES = "edges"  # in a party's memory: bins of its columns; it was asked for them


@dataclass
class LocalParty:
    """A `Party` that speaks bytes: what comes in is checked before use, what goes out passes the
    party's guard and is entered in its ledger."""

    party: Party
    dims: Mapping[str, int]
    max_bytes: int
    guard: PartyGuard | None = None
    account: Account | None = None
    sources: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of what it is made of
    learns: bool = False  # in a training run
    audit: SelfAudit | None = None
    columns: bool = True  # may leave as they are

    def handle_bytes(self, request: bytes, name: str = "") -> bytes:
        """The reply to a request; `name` tells it from every other request of the run."""
        asked = decode(request, self.dims, self.max_bytes)
        if isinstance(asked, Describe) and asked.groups > self.dims["classes"]:
            raise MessageError(f"Describe.groups is {asked.groups}: there are fewer classes")
        self._learn_first(asked)
        reply = self.party.handle(asked)
        if self.guard is not None:
            reply = self.guard.up(reply)
        scores = has_scores(self.party)
        features = FEATURES in self.party.memory and not scores and isinstance(reply, Embeddings)
        if (
            features
            and "SendFeatures" in FIRST.get(self.party.method.name, ())
            and not self.columns
        ):
            raise LimitError(
                "what this run answers with are columns as they are, which the policy does not "
                "allow (SendFeatures in its list `receive`)"
            )
        audit = None if scores else self.audit  # scores were audited when they were made
        if audit is not None:
            audit.check(self.party, asked, reply, name)
        if self.account is not None:
            self.account.enter(asked, reply, name, features, scores)
        if audit is not None:  # not before the ledger agrees: refused asks must not fill the store
            audit.remember(asked, reply)
        return encode(reply)

    def _learn_first(self, asked: Message) -> None:
        """What has learnt nothing is not shown, whatever is asked for first."""
        starts = FIRST.get(self.party.method.name, ())
        # at the sealed level a party says nothing at all before it has learnt
        sealed = getattr(self.party.method, "columns", "") == "sealed"
        if sealed or not self.learns or not starts or BEGUN in self.party.memory:
            return
        if type(asked).__name__ not in starts:
            self.party.handle(WarmUp())
        self.party.memory[BEGUN] = torch.ones(self.party.size)

    def state(self) -> dict[str, Tensor]:
        return self.party.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        self.party.restore(state)
