"""The rows that a party and the active party know to be shared, in an order that only grows.

A request names places in that order. It is made of segments, each the result of one alignment: the
training run's, those of its predictions, and one for every batch of new customers. Each side keeps the
ids of its own rows (they are its own customers), so that its file may be sorted, extended or replaced
every night; a place whose row has left the file is gone and is not asked for. Both sides know a
segment by its keyed hash.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protoevfl.deploy import durable
from protoevfl.deploy.local import Local
from protoevfl.deploy.own_file import NewRows
from protoevfl.errors import UserError
from protoevfl.rows.align_wire import AlignmentError
from protoevfl.rows.alignment import Alignment, verify
from protoevfl.rows.ids import Ids

FILE = "universe.json"


@dataclass(frozen=True)
class Segment:
    """Rows of one alignment: the ids at this side, in the order that both sides have."""

    digest: str
    ids: tuple[str, ...]

    @classmethod
    def of(cls, alignment: Alignment, ids: Ids) -> "Segment":
        """AlignmentError where the file is no longer the one that was aligned."""
        verify(alignment, ids)
        spelt = dict(zip(ids.rows.tolist(), ids.values, strict=True))
        return cls(alignment.digest, tuple(spelt[row] for row in alignment.rows.tolist()))


@dataclass
class Universe:
    """One side of it, kept in `folder`."""

    folder: Path
    segments: list[Segment] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)  # active party: ids it has asked about

    @classmethod
    def load(cls, folder: Path) -> "Universe":
        path = folder / FILE
        try:
            facts = json.loads(path.read_text())
            segments = [Segment(str(s["digest"]), tuple(s["ids"])) for s in facts["segments"]]
            return cls(folder, segments, set(facts["asked"]))
        except FileNotFoundError:
            return cls(folder)
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(
                f"{path} cannot be read; move it away, and the rows are aligned again"
            ) from None

    def add(self, segment: Segment, asked: Sequence[str] = ()) -> None:
        """One more segment; the same one again changes nothing."""
        if segment.digest not in self.digests:
            self.segments.append(segment)
        self.asked |= set(asked)
        facts = {
            "segments": [{"digest": s.digest, "ids": s.ids} for s in self.segments],
            "asked": sorted(self.asked),
        }
        durable.write(self.folder / FILE, json.dumps(facts).encode())

    @property
    def digests(self) -> list[str]:
        return [segment.digest for segment in self.segments]

    @property
    def ids(self) -> list[str]:
        """By place."""
        return [value for segment in self.segments for value in segment.ids]

    def rows(self, ids: Ids) -> NDArray[np.int64]:
        """(places,) rows of the file whose ids these are, -1 where the id is gone."""
        at = dict(zip(ids.values, ids.rows.tolist(), strict=True))
        return np.array([at.get(value, -1) for value in self.ids], dtype=np.int64)

    def places(self, digests: Sequence[str], sizes: Sequence[int]) -> dict[str, int]:
        """{id: place} in the other side's order of segments; a later place of the same id counts.

        digests, sizes   of the other side's segments; one that is not known here has no ids
        """
        known = {segment.digest: segment for segment in self.segments}
        found: dict[str, int] = {}
        start = 0
        for digest, size in zip(digests, sizes, strict=True):
            segment = known.get(digest)
            if segment is not None and len(segment.ids) == size:
                found |= {value: start + k for k, value in enumerate(segment.ids)}
            start += size
        return found


def earlier_segments(local: Local, other: str) -> Iterator[tuple[Segment, Ids]]:
    """What the training run and its predictions have aligned with `other`, where the files are still
    as they were, and all ids of the file."""
    files = list(_ids_of_files(local))
    for alignment in _alignments(local.kit.folder / "runs", local.spec.base, other):
        for ids in files:
            with suppress(AlignmentError, KeyError):
                yield Segment.of(alignment, ids), ids
                break


def _ids_of_files(local: Local) -> Iterator[Ids]:
    """Of the files that runs are aligned with, as far as they are there."""
    with suppress(UserError):
        yield local.file.ids()
    with suppress(UserError):
        yield NewRows.read(local.config, local.kit.folder, local.stored_party()).ids()


def _alignments(runs: Path, base: str, other: str) -> Iterator[Alignment]:
    for spec in sorted(runs.glob("*/spec.json")):
        folder = spec.parent
        try:
            facts = json.loads(spec.read_text())
            of_base = base in (folder.name, facts.get("base")) and facts.get("task") != "serve"
            if of_base and (folder / "alignment" / other / "alignment.json").exists():
                yield Alignment.load(folder / "alignment" / other)
        except (OSError, ValueError, UserError):
            continue
