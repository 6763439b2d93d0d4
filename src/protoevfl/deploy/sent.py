"""What left this party before, by the rows it describes: a partner uses all of it together, so a
self-audit must too, over restarts, new run names and other alignments.

Beside the row ledger there is one file per send, with the values of KEPT_ROWS rows: those with the
smallest keyed hashes of their ids, so the same people are kept whatever set of rows they are in. The
newest KEPT_SENDS are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from protoevfl.deploy.checkpoints import Checkpoint, CheckpointStore, DamagedError
from protoevfl.deploy.row_ledger import Keys
from protoevfl.errors import UserError
from protoevfl.privacy.gives_away import LEAST_ROWS
from protoevfl.privacy.ledger import locked

KEPT_ROWS = 1000  # more than the decoders of a self-audit learn from
KEPT_SENDS = 512  # with 64 numbers per row: 130 MB
MOST_SETS = 8  # sets of rows, the newest, that a reply is held against


@dataclass(frozen=True)
class Send:
    """What left in one reply: keyed hashes of ids, rising, and the values of each row."""

    keys: Keys  # (n,)
    values: Tensor  # (n, d)

    @classmethod
    def of(cls, keys: Keys, values: Tensor) -> "Send":
        """The rows that are kept of a reply, whatever their order in it."""
        kept, first = np.unique(keys, return_index=True)
        places = torch.from_numpy(first[:KEPT_ROWS])
        return cls(kept[:KEPT_ROWS], values.detach().cpu()[places])

    def equals(self, other: "Send") -> bool:
        """The same once more tells nothing new: a round that is repeated after a crash."""
        same_rows = np.array_equal(self.keys, other.keys)
        return same_rows and torch.equal(self.values, other.values)


@dataclass
class Sent:
    """The sends of one party to one partner, in `folder`."""

    folder: Path
    _sends: dict[int, Send] = field(default_factory=dict)  # by number; as far as they were read

    def __post_init__(self) -> None:
        self._store = CheckpointStore(self.folder, keep=KEPT_SENDS)

    def add(self, keys: Keys, values: Tensor) -> None:
        """Keep what leaves of these rows, unless the same has left before.

        keys     (n,) of the rows, in the order of the values
        values   (n, d)
        """
        send = Send.of(keys, values)
        with locked(self.folder / "sent"):
            self._read()
            if any(send.equals(other) for other in self._sends.values()):
                return
            number = max(self._store.rounds(), default=0) + 1
            tensors = {"keys": torch.from_numpy(send.keys), "values": send.values}
            self._store.save(Checkpoint(number, tensors))
            self._sends[number] = send

    def before(self, keys: Keys, values: Tensor) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Rows among these that earlier sends describe, with all of these sends:
        (places among `keys`, [(n, d), ...]), for each of the newest sets of rows.

        values   (n, d) of the reply in question
        """
        with locked(self.folder / "sent"):
            self._read()
        reply = Send.of(keys, values)
        sends = [send for send in self._sends.values() if not send.equals(reply)]
        for shared in _sets(sends, keys):
            whole = [send for send in sends if np.isin(shared, send.keys).all()]
            earlier = [send.values[_places(send.keys, shared)] for send in whole]
            yield _places(keys, shared), earlier

    def _read(self) -> None:
        """Sends that are not in memory yet; another run's process may have added some."""
        numbers = self._store.rounds()
        for number in set(self._sends) - set(numbers):
            del self._sends[number]
        for number in sorted(set(numbers) - set(self._sends)):
            try:
                entry = self._store.load(number)
            except DamagedError as error:
                raise UserError(
                    f"{error}; without it nobody knows what this party sent before: restore it "
                    "from a copy"
                ) from None
            self._sends[number] = Send(entry.tensors["keys"].numpy(), entry.tensors["values"])


def _sets(sends: list[Send], keys: Keys) -> list[Keys]:
    """The different sets of rows that these have in common with earlier sends, the newest first;
    sets too small to measure anything on are left out."""
    different: dict[bytes, Keys] = {}
    for send in reversed(sends):
        shared = np.intersect1d(send.keys, keys)
        if len(shared) >= LEAST_ROWS:
            different.setdefault(shared.tobytes(), shared)
        if len(different) == MOST_SETS:
            break
    return list(different.values())


def _places(keys: Keys, chosen: Keys) -> Tensor:
    """Where the chosen keys are among all."""
    order = np.argsort(keys, kind="stable")
    return torch.from_numpy(order[np.searchsorted(keys, chosen, sorter=order)])
