"""What a run measured on rows that took no part in training, ready for a page."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protoevfl.artifacts.owner import StoredOwner, TestRows
from protoevfl.artifacts.run_dir import Run
from protoevfl.core import decisions
from protoevfl.report.curves import Floats, Hits

MOST_CLASSES = 3  # whose curves are drawn where there are more than two


@dataclass(frozen=True)
class Measured:
    """Test rows and the figures of the run on them; `rows` may be new ones, with figures of their
    own."""

    run: Run
    rows: TestRows
    figures: Mapping[str, Any]  # as `pipeline.train.measure` makes them
    new_rows: bool = False  # whether they come from new files and not from the run

    @property
    def owner(self) -> StoredOwner:
        return self.run.need_owner()

    @property
    def active(self) -> str:
        """The name of the party with the labels."""
        return self.owner.parties[0]

    @property
    def others(self) -> list[str]:
        return list(self.owner.parties[1:])

    @property
    def away(self) -> list[str]:
        """Parties that sent nothing of these rows."""
        return [name for m, name in enumerate(self.owner.parties) if m not in self.rows.embeddings]

    @property
    def classes(self) -> tuple[str, ...]:
        return self.owner.classes

    @property
    def labels(self) -> Tensor:
        return self.rows.labels

    @cached_property
    def joint(self) -> Tensor:
        """(n, Z) with all parties that are there."""
        return self.owner.subset(self.rows, tuple(sorted(self.rows.embeddings)))

    @cached_property
    def alone(self) -> Tensor:
        """(n, Z) of the own model; without one, of the joint model with the own columns only."""
        return self.owner.subset(self.rows, (0,))

    @property
    def alone_name(self) -> str:
        return f"{self.active} alone" if self.has_own_model else f"only {self.active}'s columns"

    @property
    def alone_short(self) -> str:
        """The same in the head of a table."""
        return "alone" if self.has_own_model else "own columns only"

    @property
    def has_own_model(self) -> bool:
        return self.owner.has_own_model

    @cached_property
    def choice(self) -> Tensor:
        """(n,) classes by the run's rule."""
        return self.owner.choose(self.joint)

    @cached_property
    def gain(self) -> Mapping[str, Any]:
        """What the joint model gains over the own one, as the run measured it; without an own
        model over its own columns only."""
        measured: Mapping[str, Any] | None = self.figures.get("gain")
        return measured or decisions.gain(self.joint, self.alone, self.labels)

    @cached_property
    def alone_figures(self) -> Mapping[str, Any]:
        measured: Mapping[str, Any] | None = self.figures.get("alone")
        return measured or self.owner.evaluate(self.alone, self.labels)

    @cached_property
    def counts(self) -> list[int]:
        """Test rows of each class."""
        return torch.bincount(self.labels, minlength=len(self.classes)).tolist()

    @cached_property
    def drawn(self) -> list[int]:
        """Classes whose curves are drawn: of two the rarer one, of more the commonest."""
        counts = self.counts
        both = [z for z, rows in enumerate(counts) if 0 < rows < len(self.labels)]
        if len(self.classes) == 2:
            return sorted(both, key=lambda z: (counts[z], -z))[:1]
        return sorted(both, key=lambda z: -counts[z])[:MOST_CLASSES]

    def scores(self, z: int) -> tuple[Floats, Floats, Hits]:
        """(joint, alone, hits), each (n,), of one class against the rest."""
        joint, alone = (p[:, z].double().numpy() for p in (self.joint, self.alone))
        hits: Hits = np.asarray((self.labels == z).numpy(), np.bool_)
        return joint, alone, hits
