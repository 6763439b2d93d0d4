"""Labels become class numbers of the model; what cannot be measured on is refused."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from protoevfl.artifacts.owner import TestRows
from protoevfl.errors import UserError
from protoevfl.estimator.figures import known_codes, measured

CLASSES = np.array(["no", "yes"])


def test_labels_become_class_numbers() -> None:
    assert known_codes(["yes", "no", "yes"], CLASSES, 3).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("labels", "says"), [(["yes", "maybe"], "'maybe' is no class"), (["yes"], r"per row \(2\)")]
)
def test_other_labels_are_refused(labels: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        known_codes(labels, CLASSES, 2)


def test_rows_of_one_class_tell_nothing() -> None:
    owner: Any = SimpleNamespace()
    rows = TestRows({}, torch.zeros(5, dtype=torch.int64))
    with pytest.raises(UserError, match="one class only"):
        measured(owner, rows)
