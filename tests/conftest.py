"""One thread: tests run side by side, and sums in one order give the same numbers on every machine size.

A property is not false because the machine was busy: no deadline for an example.
"""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
