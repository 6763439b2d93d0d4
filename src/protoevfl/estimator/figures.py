"""What joining gains on labelled rows that took no part in training."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protoevfl.artifacts.owner import StoredOwner, TestRows
from protoevfl.core import decisions
from protoevfl.errors import UserError
from protoevfl.pipeline.train import measure
from protoevfl.pipeline.value import MOST, value


def known_codes(labels: Any, classes: NDArray[Any], rows: int) -> NDArray[np.int64]:
    """(n,) class numbers of labels, each of which must be a class of the model."""
    number = {name: z for z, name in enumerate(classes.tolist())}
    values = np.asarray(labels).tolist()
    if len(values) != rows:
        raise UserError(f"labels must be one value per row ({rows}), not {len(values)}")
    if unknown := [label for label in values if label not in number]:
        raise UserError(
            f"the label {unknown[0]!r} is no class of this model; it has "
            f"{', '.join(map(str, number))}"
        )
    return np.array([number[label] for label in values], np.int64)


def measured(owner: StoredOwner, rows: TestRows) -> dict[str, Any]:
    """All parties, the first one alone, the gain, every subset, and what each party is worth."""
    if len(torch.unique(rows.labels)) < 2:
        raise UserError("the rows to measure on are of one class only, or fewer than two")
    figures = measure(owner, rows)
    if "gain" not in figures:  # no label beyond the shared rows: the joint model on its columns
        alone = owner.subset(rows, (0,))
        everyone = owner.subset(rows, tuple(range(len(owner.parties))))
        figures["alone"] = owner.evaluate(alone, rows.labels)
        figures["gain"] = decisions.gain(everyone, alone, rows.labels)
    if len(owner.parties) <= MOST:
        figures["value"] = value(owner, rows).to_dict()
    return figures
