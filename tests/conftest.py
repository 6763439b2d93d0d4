"""One thread: tests run side by side, and sums in one order give the same numbers on every machine size."""

import torch

torch.set_num_threads(1)
