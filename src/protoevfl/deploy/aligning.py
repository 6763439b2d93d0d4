"""Alignment between companies: the messages of rows/align.py over the same encrypted channel, end to end.

    step 11, 12, 13   the rows to learn from: the active party offers its labelled rows
    step 21, 22, 23   the rows to predict: the active party offers its rows without a label, or its file of new rows

Every party keeps its own result in its run folder and shows the keyed hash of the common order before anything else
happens; where the hashes differ (a crash in the middle), alignment starts again with fresh keys.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from protoevfl.deploy.own_file import OwnFile, Rows
from protoevfl.errors import UserError
from protoevfl.rows.align import Active, Passive
from protoevfl.rows.alignment import Alignment, verify
from protoevfl.rows.ids import Ids
from protoevfl.rows.psi import curve

TRAIN, QUERY = 1, 2
NAMES = {TRAIN: "train", QUERY: "query"}
SETUP, RESPOND, SELECT = 1, 2, 3
Ask = Callable[[str, int, bytes], bytes]  # (party, step, message) -> message


@dataclass
class Aligned:
    """A party's alignments of a run, kept in `folder`."""

    folder: Path

    def load(self, phase: int) -> Alignment | None:
        path = self.folder / NAMES[phase]
        return Alignment.load(path) if (path / "alignment.json").exists() else None

    def save(self, phase: int, result: Alignment) -> None:
        result.save(self.folder / NAMES[phase])

    @property
    def digest(self) -> str:
        """Equal at all parties that hold the same rows in the same order; "" without an alignment."""
        found = [self.load(phase) for phase in (TRAIN, QUERY)]
        return ":".join("" if a is None else a.digest for a in found) if any(found) else ""

    def rows(self, phase: int, ids: Ids) -> Rows:
        """Row numbers of this party's file in the common order; the file must not have changed since."""
        found = self.load(phase)
        if found is None:
            return np.zeros(0, np.int64)
        verify(found, ids)
        return found.rows


@dataclass
class PassiveSide:
    """Answers the active party's alignment messages with this party's ids."""

    name: str
    file: Callable[[], OwnFile]
    results: Aligned
    new_rows: bool = False  # phase QUERY is about the file of new rows
    talks: dict[int, Passive] = field(default_factory=dict)
    open: ExitStack = field(default_factory=ExitStack)

    @property
    def digest(self) -> str:
        return self.results.digest

    def handle_bytes(self, step: int, request: bytes) -> bytes:
        phase, part = divmod(step, 10)
        if phase not in NAMES or part not in (SETUP, RESPOND, SELECT):
            raise UserError("an alignment message of an unknown step")
        if part == SETUP:
            return self._begin(phase).setup()
        if phase not in self.talks:
            raise UserError("an alignment message out of order")
        if part == RESPOND:
            return self.talks[phase].respond(request)
        result, confirmation = self.talks.pop(phase).select(request)
        self.results.save(phase, result)
        self.open.close()
        return confirmation

    def _begin(self, phase: int) -> Passive:
        file = self.file()
        ids = file.ids(file.predict if phase == QUERY and self.new_rows else None)
        on = self.open.enter_context(curve(0, len(ids.values)))
        minimum = file.minimum if phase == TRAIN else 1
        self.talks[phase] = Passive(self.name, ids, on, minimum)
        return self.talks[phase]


def lead_alignment(name: str, others: list[str], phase: int, ids: Ids, minimum: int, ask: Ask) -> Alignment:
    """The active party's side of one phase."""
    with curve(0, len(ids.values)) as on:
        owner = Active(name, ids, on, minimum)
        for other in others:
            request = owner.request(other, ask(other, 10 * phase + SETUP, b""))
            owner.receive(other, ask(other, 10 * phase + RESPOND, request))
        for other, selection in owner.select().items():
            owner.confirm(other, ask(other, 10 * phase + SELECT, selection))
        return owner.result()
