"""What a reply gives away of the party's own columns, measured before it leaves.

A party has both its columns and what it is about to send, so it can try to rebuild the one from the
other (privacy/gives_away.py). Every measurement is written down for the party's own people; above
the bound of its policy nothing leaves, and the other side does not learn which column it was.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from protoevfl.federation.party import Party
from protoevfl.messages import Embed, Embeddings, Learned, Message
from protoevfl.privacy.gives_away import SelfAuditError

FILE = "gives_away.jsonl"  # in the run's folder: one line per reply


@dataclass
class SelfAudit:
    """The measurements of one run.

    earlier is what left before, by the rows it describes: an active party uses all of it together.
    A process that starts again begins with nothing.
    """

    columns: tuple[str, ...]  # the party's own, in the order of its table
    most: float  # max_rebuilt of its policy; 1: no bound
    path: Path
    earlier: dict[str, list[Tensor]] = field(default_factory=dict)

    def check(self, party: Party, request: Message, reply: Message, name: str) -> None:
        """Measure a reply, write it down, and refuse what gives away too much."""
        if not isinstance(reply, Embeddings | Learned) or not len(reply.values):
            return
        rows = request.rows if isinstance(request, Embed) else "aligned"
        earlier = self.earlier.setdefault(rows, [])
        scores = party.gives_away(request, reply, self.columns, earlier)
        self._write(name, rows, scores)
        if self.most < 1:
            self._hold(scores, len(reply.values))
        earlier.append(reply.values.cpu())

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
