"""Whole runs in double precision, for comparing two orders of the same sums.

Adam divides by the gradient's size: in single precision the rounding of a gradient that is zero can
move a weight by the learning rate, and by how much depends on the processor. In double precision it
is far below Adam's epsilon.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor


@contextmanager
def double_precision() -> Iterator[None]:
    """New tensors are double, and so is what `.float()` gives. Messages can then not be encoded,
    which needs single."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "float", Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)
