"""Which rows of a data set are aligned, which lie in whose pool, which are test rows; and the
parties' tables that come of it.

Rules, in the order they apply (all draws from numpy Generators of (seed, purpose)):

1. Aligned rows: with more than two classes as many of each class, remaining rows to the classes
   with most rows; with two classes the natural rates. A class gives at most half of its train rows;
   what it cannot give comes from the others (ModelNet-10 has 106 bathtubs: 53 can be aligned).
2. Pools: disjoint, none of the aligned rows, at least one row of every class at every party. The
   requested profile is met exactly where the rows suffice, else as nearly as they allow
   (`profiles.nearest_counts`), and the summary says so; `exact=True` makes that an error.
3. Setting: `few_shot` keeps `shots` aligned rows of the given classes, `zero_shot` none. `aligned`
   counts before this removal, and the removed rows go to nobody, so pools are the same in all
   settings of one seed.

For one seed the aligned rows of a smaller N_a are among those of a larger one.
"""

import hashlib
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.rows import split_counts
from protoevfl.rows.dataset import Array, Dataset, party_views
from protoevfl.rows.encoders import encode_rows, fit_encoder
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.frames import Frame
from protoevfl.rows.split_counts import SplitSpec
from protoevfl.rows.survey import FeatureSpec
from protoevfl.rows.table import Labels, PartyTable

ROWS, ORDER = 0, 2  # purposes of random draws; 1 is for the profile


@dataclass(frozen=True)
class Split:
    """Row numbers of a data set; `counts` are those of the pools."""

    spec: SplitSpec
    seed: int
    aligned: Tensor  # (N_a,) int64, the same order at every party
    pools: tuple[Tensor, ...]  # M x (N_u,) int64
    test: Tensor  # (n_test,) int64
    aligned_counts: tuple[int, ...]  # (Z,)
    counts: tuple[tuple[int, ...], ...]  # (M, Z)
    notes: tuple[str, ...] = field(default=())

    @property
    def further(self) -> tuple[Tensor, ...]:
        """Rows of the active party's pool that it shares with each single other party, (M - 1) x
        (overlap,)."""
        n = self.spec.overlap
        return tuple(self.pools[0][m * n : (m + 1) * n] for m in range(len(self.pools) - 1))

    def further_of(self, party: int) -> Tensor:
        """The further shared rows that a party holds; the active party holds all of them."""
        if not self.spec.overlap:
            return self.aligned[:0]
        return self.further[party - 1] if party else torch.cat(self.further)

    @property
    def unseen(self) -> tuple[int, ...]:
        """Classes without an aligned row by request."""
        return self.spec.classes if self.spec.setting == "zero_shot" else ()

    @property
    def rare(self) -> tuple[int, ...]:
        """Classes with `shots` aligned rows by request."""
        return self.spec.classes if self.spec.setting == "few_shot" else ()

    @property
    def hash(self) -> str:
        """sha256 over the row numbers of all parts."""
        digest = hashlib.sha256()
        further = self.further if self.spec.overlap else ()
        for rows in (self.aligned, *self.pools, self.test, *further):
            digest.update(len(rows).to_bytes(8, "little") + rows.numpy().astype("<i8").tobytes())
        return digest.hexdigest()

    def imbalance(self) -> dict[str, list[float]]:
        """Gamma, MID and WCS of each party's pool."""
        from protoevfl.core import imbalance

        counts = torch.tensor(self.counts, dtype=torch.float64)  # (M, Z)
        return {
            "gamma": [float(imbalance.gamma(row)) for row in counts],
            "mid": [float(imbalance.mid(row)) for row in counts],
            "wcs": [float(value) for value in imbalance.wcs(counts)],
        }

    def as_json(self) -> dict[str, Any]:
        """What a record stores about the split."""
        return {
            "spec": asdict(self.spec),
            "seed": self.seed,
            "hash": self.hash,
            "aligned_counts": list(self.aligned_counts),
            "pool_counts": [list(row) for row in self.counts],
            "test_rows": len(self.test),
            **self.imbalance(),
            "notes": list(self.notes),
        }

    def summary(self) -> str:
        """The split in a few lines of text."""
        measures = self.imbalance()
        lines = [
            (
                f"{self.spec.dataset}: {len(self.aligned):,} aligned rows "
                f"{list(self.aligned_counts)}, {len(self.test):,} test rows, setting "
                f"{self.spec.setting} {list(self.spec.classes) or ''}"
            ).rstrip()
        ]
        for m, row in enumerate(self.counts):
            gamma, mid, wcs = (measures[key][m] for key in ("gamma", "mid", "wcs"))
            lines.append(
                f"party {m + 1}: {sum(row):,} pool rows {list(row)}, Gamma {gamma:.1f}, MID "
                f"{mid:.3f}, WCS {wcs:.3f}"
            )
        return "\n".join([*lines, *self.notes, f"rows sha256 {self.hash}"])


def split_dataset(dataset: Dataset, spec: SplitSpec, seed: int) -> Split:
    """The split of a data set by its own train and test rows and its own defaults."""
    spec = replace(spec, dataset=dataset.name)
    labels = dataset.labels[dataset.train]
    return make_split(
        labels, spec, seed, rows=dataset.train, test=dataset.test, classes=dataset.classes
    )


def make_split(
    labels_train: Tensor,
    spec: SplitSpec,
    seed: int,
    rows: Tensor | None = None,
    test: Tensor | None = None,
    classes: int | None = None,
) -> Split:
    """Draws a split; `rows` are the row numbers of `labels_train` (default 0, 1, ...), `test` is
    passed through."""
    labels = labels_train.numpy()
    frequency = np.bincount(labels, minlength=classes or 0)  # (Z,)
    split_counts.check(spec, frequency)
    aligned = split_counts.aligned_counts(spec, frequency)  # (Z,)
    left = frequency - aligned
    pool, notes = split_counts.pool_rows(spec, left)
    counts, adapted = split_counts.pool_counts(spec, pool, left, seed)
    kept = split_counts.kept_counts(spec, aligned)
    drawn = _draw(labels, aligned, kept, counts, seed)
    if spec.overlap * (spec.parties - 1) > len(drawn[1]):
        raise UserError(
            f"an overlap of {spec.overlap} rows with each of {spec.parties - 1} parties needs more "
            f"than the {len(drawn[1])} rows of the active party's pool"
        )
    numbers = torch.arange(len(labels)) if rows is None else rows
    return Split(
        spec=spec,
        seed=seed,
        aligned=numbers[drawn[0]],
        pools=tuple(numbers[part] for part in drawn[1:]),
        test=torch.empty(0, dtype=torch.int64) if test is None else test,
        aligned_counts=tuple(kept.tolist()),
        counts=tuple(tuple(row) for row in counts.tolist()),
        notes=(*notes, *adapted),
    )


def _draw(labels: Array, aligned: Array, kept: Array, counts: Array, seed: int) -> list[Array]:
    """Positions of the aligned rows, then of each pool, each in random order."""
    rng = np.random.default_rng([seed, ROWS])
    parts: list[list[Array]] = [[] for _ in range(1 + len(counts))]
    for z in range(len(aligned)):
        order = rng.permutation(np.flatnonzero(labels == z))
        parts[0].append(order[: kept[z]])
        cuts = aligned[z] + np.cumsum([0, *counts[:, z]])
        for m in range(len(counts)):
            parts[1 + m].append(order[cuts[m] : cuts[m + 1]])
    shuffle = np.random.default_rng([seed, ORDER])
    return [shuffle.permutation(np.concatenate(part)) for part in parts]


def party_tables(dataset: Dataset, split: Split) -> list[PartyTable]:
    """The table of each party; scalers are fitted on its own pool and aligned rows only."""
    return [
        _party_table(dataset, split, party, views)
        for party, views in enumerate(party_views(dataset, len(split.pools)))
    ]


def _party_table(dataset: Dataset, split: Split, party: int, views: list[int]) -> PartyTable:
    name = f"party {party + 1}"
    spans: tuple[tuple[int, int], ...] | None = None
    numbers: tuple[int, ...] = ()
    wanted = (split.pools[party], split.aligned, split.test, split.further_of(party))
    if isinstance(dataset.features, Tensor):
        parts = [dataset.features[rows][:, views] for rows in wanted]
    else:
        fit_rows = torch.cat([split.pools[party], split.aligned])
        encoded, encoder = encode_columns(dataset.features.select(views), fit_rows)
        spans, numbers = encoder.spans, encoder.numbers
        parts = [encoded[rows] for rows in wanted]
    pool, aligned, query, further = parts
    return PartyTable(name, pool, aligned, query, spans, numbers, further)


def encode_columns(table: Any, fit_rows: Tensor) -> tuple[Tensor, TableEncoder]:
    """All rows of a pyarrow Table as features (n, D), and the encoder, which learnt from `fit_rows`
    only."""
    frame = Frame("the table", table)
    keep = np.zeros(frame.rows, np.bool_)
    keep[fit_rows.numpy()] = True
    encoder = fit_encoder(frame, FeatureSpec(frame.columns), None, keep)
    assert isinstance(encoder, TableEncoder)
    return encode_rows(encoder, frame), encoder


def labels_of(dataset: Dataset, split: Split) -> Labels:
    """The labels that go with `party_tables`."""
    return Labels(
        classes=dataset.classes,
        aligned=dataset.labels[split.aligned],
        query=dataset.labels[split.test],
        pools=tuple(dataset.labels[rows] for rows in split.pools),
        unseen=split.unseen,
        rare=split.rare,
    )
