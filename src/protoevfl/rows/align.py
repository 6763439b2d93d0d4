"""Which rows do we share? Private set intersection among M parties, as messages that any wire can
carry.

    passive -> active   setup      { H(x)^s }, sorted
    active  -> passive  request    { H(y)^c }, sorted
    passive -> active   response   { H(y)^c^s }, same order
                        active: H(y)^s = (H(y)^c^s)^(1/c), looked up in setup
    active  -> passive  selection  places in the passive party's own setup, in the common order
    passive -> active   confirm    proof of the same ordered list

Who learns what. The active party learns its intersection with each passive party (every pair, not
only the common part) and each party's number of ids. A passive party learns the active party's
number of ids and which of its own rows are common to all; of other ids nothing. Someone who reads
the messages learns sizes only: keys are fresh in every run, and ids never travel, hashed or not.
Parties are taken to follow the protocol (honest but curious): an active party that guesses ids can
ask for them, so a passive party can cap the size of a request (`limit`).

The common order follows a keyed hash that only the active party can compute: it tells nothing about
the files.
"""

import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protoevfl.rows import align_wire as wire
from protoevfl.rows.align_wire import AlignmentError
from protoevfl.rows.alignment import (
    Alignment,
    Rows,
    counts_of,
    digest_key,
    enough,
    make_result,
    order,
    prove,
)
from protoevfl.rows.ids import Ids, suspicions
from protoevfl.rows.psi import Curve, curve, inverse, new_key, table

MINIMUM = 50  # rows: below it an intersection says too much about single people, and trains nothing
Progress = Callable[[str, int, int], None]  # (what is being done, done, total)


class Passive:
    """The PSI server: a party without labels. Answers three messages, in order."""

    def __init__(
        self, name: str, ids: Ids, on: Curve, minimum: int = MINIMUM, limit: int | None = None
    ) -> None:
        self.name, self.ids, self.minimum, self.limit = name, ids, minimum, limit
        self._curve, self._key = on, new_key()
        self._order: Rows = np.empty(0, np.int64)  # place in the setup -> place in ids.values
        self._peer_ids = 0

    def setup(self, progress: Progress | None = None) -> bytes:
        """Own ids as points, sorted, so that the file's order stays at home."""
        points = table(
            self._curve.encrypt(
                self._key, self.ids.values, _named(progress, f"{self.name}: own ids")
            )
        )
        self._order = np.argsort(points)
        return wire.encode("setup", self.ids.rules.digest(), points[self._order].tobytes())

    def peer_ids(self, request: bytes) -> int:
        """How many ids a request asks about."""
        return wire.count_points(wire.decode(request, "request", self.ids.rules.digest()))

    def respond(self, request: bytes, progress: Progress | None = None) -> bytes:
        """Encrypt the active party's points once more; their number is all that this tells."""
        points = wire.decode(request, "request", self.ids.rules.digest())
        self._peer_ids = wire.count_points(points)
        if self.limit is not None and self._peer_ids > self.limit:
            raise AlignmentError(
                f"the active party asks for {self._peer_ids} ids, more than the limit {self.limit}"
            )
        again = self._curve.reencrypt(
            self._key, points, _named(progress, f"{self.name}: ids of the active party")
        )
        return wire.encode("response", self.ids.rules.digest(), again)

    def select(self, selection: bytes) -> tuple[Alignment, bytes]:
        """The common rows in the common order, and the proof to send back. Refuses a list that the
        active party does not know by name (its digest is over the ids themselves) or that is too
        short."""
        key, proof, places = wire.unpack_selection(
            wire.decode(selection, "selection", self.ids.rules.digest())
        )
        if len(places) < self.minimum:
            raise AlignmentError(
                f"only {len(places)} rows in common, fewer than the minimum {self.minimum}"
            )
        if len(places) and (
            places.max() >= len(self._order) or len(np.unique(places)) != len(places)
        ):
            raise AlignmentError(
                "the selection names rows that were never offered; refuse this run and ask the "
                "sender"
            )
        chosen = self._order[places]  # (n,)
        values = [self.ids.values[i] for i in chosen]
        if not hmac.compare_digest(proof, prove(key, "active", values)):
            raise AlignmentError(
                "the active party's digest does not fit the selected rows; align again"
            )
        counts = counts_of(self.ids, len(values)) | {"active_ids": self._peer_ids}
        result = make_result(self.name, self.ids, chosen, values, key, counts)
        return result, wire.encode(
            "confirm", self.ids.rules.digest(), prove(key, "passive", values)
        )


class Active:
    """The PSI client: the party with the labels. Talks to each passive party, then selects what all
    share."""

    def __init__(
        self, name: str, ids: Ids, on: Curve, minimum: int = MINIMUM, run_key: bytes | None = None
    ) -> None:
        self.name, self.ids, self.minimum = name, ids, minimum
        self._curve, self._run_key = on, run_key or secrets.token_bytes(32)
        self._keys: dict[str, bytes] = {}  # a fresh one for each pair
        self._setups: dict[str, NDArray[Any]] = {}
        self._sent: dict[str, Rows] = {}  # place in the request -> place in ids.values
        # (own ids,) place in that party's setup, -1 where it has no such id
        self._places: dict[str, Rows] = {}
        self._chosen: Rows = np.empty(0, np.int64)

    def request(self, party: str, setup: bytes, progress: Progress | None = None) -> bytes:
        """Keep the party's points, send own ids as points."""
        points_of_party = table(wire.decode(setup, "setup", self.ids.rules.digest()))
        if len(points_of_party) > 1 and not bool(
            (points_of_party[:-1] < points_of_party[1:]).all()
        ):
            raise AlignmentError(f"the setup of {party} is not a sorted list of distinct points")
        self._setups[party], self._keys[party] = points_of_party, new_key()
        label = f"{self.name}: own ids for {party}"
        points = table(
            self._curve.encrypt(self._keys[party], self.ids.values, _named(progress, label))
        )
        self._sent[party] = np.argsort(points)
        return wire.encode("request", self.ids.rules.digest(), points[self._sent[party]].tobytes())

    def receive(self, party: str, response: bytes, progress: Progress | None = None) -> int:
        """Take the own key off the response and look it up in the setup; the number of ids shared
        with this party."""
        points = wire.decode(response, "response", self.ids.rules.digest())
        if wire.count_points(points) != len(self.ids.values):
            raise AlignmentError(
                f"{party} answered {wire.count_points(points)} points for {len(self.ids.values)} "
                "ids"
            )
        label = f"{self.name}: answers of {party}"
        own_points = table(
            self._curve.reencrypt(inverse(self._keys[party]), points, _named(progress, label))
        )
        place = _find(self._setups[party], own_points)  # (own ids,), in the order sent
        self._places[party] = np.full(len(own_points), -1, np.int64)
        self._places[party][self._sent[party]] = place
        return int((place >= 0).sum())

    def select(self) -> dict[str, bytes]:
        """For each passive party, the places of the common ids in its setup. Raises, sending
        nothing, below the minimum."""
        shared = np.all([place >= 0 for place in self._places.values()], axis=0)
        common = np.flatnonzero(shared)  # (n,) places in ids.values
        self._chosen = common[order([self.ids.values[i] for i in common], self._run_key)]
        enough(len(common), self.minimum, self.ids.values)
        proof = prove(digest_key(self._run_key), "active", self._values())
        return {
            party: wire.encode(
                "selection",
                self.ids.rules.digest(),
                wire.pack_selection(digest_key(self._run_key), proof, place[self._chosen]),
            )
            for party, place in self._places.items()
        }

    def confirm(self, party: str, message: bytes) -> None:
        """Check that the party holds the same ids in the same order."""
        proof = wire.decode(message, "confirm", self.ids.rules.digest())
        if not hmac.compare_digest(
            proof, prove(digest_key(self._run_key), "passive", self._values())
        ):
            raise AlignmentError(f"{party} does not hold the same ordered ids; align again")

    def result(self) -> Alignment:
        counts = counts_of(self.ids, len(self._chosen))
        counts |= {
            f"shared_with_{party}": int((place >= 0).sum()) for party, place in self._places.items()
        }
        counts |= {f"ids_of_{party}": len(points) for party, points in self._setups.items()}
        return make_result(
            self.name, self.ids, self._chosen, self._values(), digest_key(self._run_key), counts
        )

    def _values(self) -> list[str]:
        return [self.ids.values[i] for i in self._chosen]


def align(
    parties: Mapping[str, Ids],
    active: str,
    minimum: int = MINIMUM,
    processes: int = 0,
    progress: Progress | None = None,
    run_key: bytes | None = None,
) -> dict[str, Alignment]:
    """The whole protocol in one process: every message is made, sent and checked as between
    companies."""
    if len(parties) < 2 or active not in parties:
        raise AlignmentError("alignment needs the active party and at least one other")
    with curve(processes, max(len(ids.values) for ids in parties.values())) as on:
        owner = Active(active, parties[active], on, minimum, run_key)
        others = {
            name: Passive(name, ids, on, minimum) for name, ids in parties.items() if name != active
        }
        for name, party in others.items():
            request = owner.request(name, party.setup(progress), progress)
            owner.receive(name, party.respond(request, progress), progress)
        results = {}
        for name, selection in owner.select().items():
            results[name], confirmation = others[name].select(selection)
            owner.confirm(name, confirmation)
        return {active: owner.result(), **results}


def plain_intersection(
    parties: Mapping[str, Ids], minimum: int = 0, run_key: bytes = b"simulation"
) -> dict[str, Alignment]:
    """The same result without privacy, where one process may read all files: same ids, same order
    for the same key."""
    names = list(parties)
    sets = [set(ids.values) for ids in parties.values()]
    common = set.intersection(*sets)
    # looking for spellings that nearly match takes longer than all the rest
    if len(common) < minimum:
        enough(len(common), minimum, parties[names[0]].values, suspects(parties))
    key, results = digest_key(run_key), {}
    for name, ids in parties.items():
        chosen = np.flatnonzero([value in common for value in ids.values])
        chosen = chosen[order([ids.values[i] for i in chosen], run_key)]
        values = [ids.values[i] for i in chosen]
        results[name] = make_result(name, ids, chosen, values, key, counts_of(ids, len(values)))
    return results


def _find(haystack: NDArray[Any], needles: NDArray[Any]) -> Rows:
    """(n,) place of each needle in the sorted haystack, -1 where it is not there."""
    if not len(haystack):
        return np.full(len(needles), -1, np.int64)
    place = np.minimum(np.searchsorted(haystack, needles), len(haystack) - 1)
    return np.where(haystack[place] == needles, place, -1).astype(np.int64)


def suspects(parties: Mapping[str, Ids]) -> list[str]:
    """Ids of the first party and each other one that would match but for their spelling, as lines
    for a person."""
    first, *others = parties.items()
    return [line for name, ids in others for line in suspicions(first[1], ids, (first[0], name))]


def _named(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(what, done, total)
