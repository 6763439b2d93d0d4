"""What a reply gives away of the party's own columns, measured before it leaves.

A party has both its columns and what it is about to send, so it can try to rebuild the one from the
other (privacy/gives_away.py), with everything it sent of the same rows before (sent.py). Every
measurement is written down for the party's own people; above the bound of its policy nothing leaves,
and the other side does not learn which column it was.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from protoevfl.deploy.account import Account
from protoevfl.deploy.row_ledger import Keys
from protoevfl.deploy.sent import Sent
from protoevfl.federation.party import Party
from protoevfl.messages import (
    Embed,
    Embeddings,
    ForwardBatch,
    Learned,
    Message,
    MixedEmbeddings,
    Projections,
)
from protoevfl.privacy.gives_away import SelfAuditError

FILE = "gives_away.jsonl"  # in the run's folder: one line per reply
DESCRIBES_ROWS = (Embeddings, Learned, Projections)


@dataclass
class SelfAudit:
    """The measurements of one run."""

    columns: tuple[str, ...]  # the party's own, in the order of its table
    most: float  # max_rebuilt of its policy; 1: no bound
    path: Path
    account: Account  # whose rows are in the order of the party's table

    def __post_init__(self) -> None:
        self.sent = Sent(self.account.ledger.folder / "sent")  # in this and in earlier runs

    def check(self, party: Party, request: Message, reply: Message, name: str) -> None:
        """Measure a reply, write it down, and refuse what gives away too much.

        name   of the round and its request
        """
        if isinstance(reply, MixedEmbeddings) and self.most < 1:
            raise SelfAuditError(
                "rows of the pool in a reply cannot be measured; nothing is sent (max_rebuilt in "
                "policy.toml)"
            )
        if not isinstance(reply, DESCRIBES_ROWS) or not len(reply.values):
            return
        keys = self._rows(request)
        scores: dict[str, float] = {}
        whole = False  # was the reply measured on all its rows?
        for places, earlier in self.sent.before(keys, reply.values):
            whole |= len(places) == len(keys)
            rebuilt = party.gives_away(request, reply, self.columns, earlier, places)
            scores = {c: max(score, scores.get(c, 0.0)) for c, score in rebuilt.items()}
        if not whole:
            alone = party.gives_away(request, reply, self.columns)
            scores = {c: max(score, scores.get(c, 0.0)) for c, score in alone.items()} or scores
        self._write(name, _use(request), scores)
        if self.most < 1:
            self._hold(scores, len(keys))

    def remember(self, request: Message, reply: Message) -> None:
        """The reply leaves: later ones are held against it too."""
        if isinstance(reply, DESCRIBES_ROWS) and len(reply.values):
            self.sent.add(self._rows(request), reply.values)

    def _rows(self, request: Message) -> Keys:
        keys = self.account.parts[_use(request)]
        return keys[request.rows.numpy()] if isinstance(request, ForwardBatch) else keys

    def _hold(self, scores: dict[str, float], rows: int) -> None:
        if not scores:
            raise SelfAuditError(
                f"{rows} rows are too few to measure what the reply gives away; nothing is sent "
                "(max_rebuilt in policy.toml)"
            )
        column = max(scores, key=scores.__getitem__)
        if scores[column] > self.most:
            raise SelfAuditError(
                f"the reply would give away {scores[column]:.2f} of '{column}' (0 nothing, 1 all), "
                f"more than max_rebuilt = {self.most:g} in policy.toml; nothing is sent"
            )

    def _write(self, name: str, rows: str, scores: dict[str, float]) -> None:
        rounded = {column: round(score, 3) for column, score in scores.items()}
        line = json.dumps({"request": name, "rows": rows, "given away": rounded})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _use(request: Message) -> str:
    return request.rows if isinstance(request, Embed) else "aligned"
