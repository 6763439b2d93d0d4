"""The active party's side of a run on files: who has which of its rows and what for, labels,
predictions."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.artifacts.owner import StoredOwner
from protoevfl.deploy.aligning import Ask, Pair, align_pair, pack_uses, send_uses, sharing
from protoevfl.deploy.own_file import NewRows, OwnFile
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.pipeline.predict import Predictions, predict_rows
from protoevfl.pipeline.prepare import (
    NOTHING,
    ActiveRows,
    Prepared,
    Sharing,
    assemble,
    check_labels,
    cut_rows,
    prepare_party,
    read_labels,
    rows_of,
)
from protoevfl.rows.files import read_columns
from protoevfl.rows.ids import Ids


@dataclass
class ActiveSide:
    """Of a training run `source` is the file to learn from, of a prediction the file of new
    rows."""

    spec: JobSpec
    source: OwnFile | NewRows
    folder: Path  # of the pairs' alignments
    seed: int = 0  # of everything random here, from the party's own secret

    @cached_property
    def ids(self) -> Ids:
        return self.source.ids()

    @cached_property
    def labels(self) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """(rows,) class numbers, -1 where there is no label, and the class names."""
        assert isinstance(self.source, OwnFile)
        labels, classes = read_labels(self.source.label, self.source.file)
        if len(classes) != self.spec.classes:
            raise UserError(
                f"the file has {len(classes)} classes ({', '.join(classes[:5])}), the job says "
                "otherwise"
            )
        return labels, classes

    def pair(self, other: str) -> Pair:
        return Pair(self.folder / other)

    # ------------------------------------------------------------ alignment

    def align(
        self, shown: Mapping[str, str], ask: Ask, without: frozenset[str] = frozenset()
    ) -> None:
        """Find what is shared with each other party and tell it what for, unless both sides hold
        the same already.

        shown     each party's keyed hash of what it holds, as it says itself; nothing of those that are away
        without   parties that need not be aligned with: they are away, and the run goes on
        """
        for other in self.spec.parties[1:]:
            pair = self.pair(other)
            known = pair.digest
            same = known and shown.get(other, known) == known
            if not same and other not in without:
                pair.save(align_pair(self.spec.active, other, self.ids, self.source.minimum, ask))
        for m, other in enumerate(self.spec.parties[1:], 1):
            pair = self.pair(other)
            alignment = pair.load()
            if alignment is None:
                continue
            places = rows_of(self.rows, self.shared, m, predict=True)
            if pair.uses() != pack_uses(places, alignment, self.ids):
                pair.keep_uses(send_uses(other, places, alignment, self.ids, ask))

    @cached_property
    def shared(self) -> Sharing:
        return sharing([self.pair(other).load() for other in self.spec.parties[1:]], self.ids)

    @cached_property
    def rows(self) -> ActiveRows:
        """Rows of the active party's file by their use."""
        if isinstance(self.source, NewRows):
            return ActiveRows(NOTHING, NOTHING, NOTHING, NOTHING, self.ids.rows)
        return cut_rows(self.ids, self.labels[0], self.shared, self.seed, self.source.config.test)

    # ------------------------------------------------------------ training

    @cached_property
    def world(self) -> Prepared:
        """What training needs of this party, as `pipeline.one_process.prepare` has it of all."""
        assert isinstance(self.source, OwnFile)
        labels, classes = self.labels
        notes = check_labels(labels, self.rows, classes, self.source.label)
        own = rows_of(self.rows, self.shared, 0, predict=True)
        total = self.ids.counts.input
        part = prepare_party(
            self.source.file, own, None, total, self.source.config.pool, self.seed, notes
        )
        return assemble([part], labels, classes, self.rows, self.shared, notes)

    # ------------------------------------------------------------ prediction

    def predictions(
        self, owner: StoredOwner, query: Mapping[int, Tensor], own: Tensor
    ) -> Predictions:
        """Of the rows to be predicted, each from the parties that have it.

        query   embeddings that each party sent: of the rows kept aside, then of its rows to be
        predicted
        own     the active party's view of the same rows, encoded
        """
        asked = self.rows.asked
        first = len(self.rows.kept_aside)
        # (M, n)
        has = np.concatenate([np.ones((1, len(asked)), np.bool_), self.shared.place[:, asked] >= 0])
        place = np.where(has, has.cumsum(1) - 1, -1)
        senders = [m for m in query if has[m].any()]
        spelt = dict(zip(self.ids.rows.tolist(), self.ids.values, strict=True))
        return predict_rows(
            owner,
            [spelt[row] for row in asked.tolist()],
            self._id_table().take(asked),
            {m: query[m][first:] for m in senders},
            {m: torch.from_numpy(place[m]) for m in senders},
            own[first:] if owner.has_own_model else None,
        )

    def asked_of(self, party: int) -> int:
        """How many of the rows to be predicted a party has."""
        return len(rows_of(self.rows, self.shared, party, predict=True).asked)

    def _id_table(self) -> Any:
        """The id columns as they stand in the file, a pyarrow table."""
        if isinstance(self.source, NewRows):
            path, columns = self.source.path, list(self.source.party.id_columns)
        else:
            path, columns = self.source.file.info.path, list(self.source.config.id)
        return read_columns(path, columns, text=columns)
