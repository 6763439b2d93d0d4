"""How much a party sends of each shared row: `columns = "open" | "few" | "sealed"`.

    open     features of tables, or embeddings of all layers: most accurate, columns can be rebuilt
    few      the largest principal components of the party's own rows, each rounded to half a spread
    sealed   one coarse score per class, from class sums made under encryption (methods/sealed.py)

The party computes the components from its own rows alone: no label and nothing of the other side's
choosing enters, except how many there are (`few`). They are rounded because an exact number is the
fingerprint of its row: one unrounded component of five categories tells them nearly all
(docs/notes/columns.md). Rounding, unlike fresh noise, cannot be averaged away by asking again.
"""

import torch
from torch import Tensor

from protoevfl.errors import UserError

LEVELS = {
    "open": "features or embeddings of every shared row: columns can be rebuilt from them",
    "few": "a few rounded numbers per shared row: part of the columns can be rebuilt from them",
    "sealed": "one score per class and shared row, made under encryption",
}
MEASURED = ("open", "few")  # levels at which a company can measure by itself what it gives away
STEP = 0.5  # to which numbers are rounded, in spreads of the first component
SAMPLE = 20_000  # rows that components are learnt from


def check_level(level: str) -> None:
    """UserError for a level that there is not."""
    if level not in LEVELS:
        raise UserError(f"unknown level of columns '{level}'; there are {', '.join(LEVELS)}")


def learn_few(rows: Tensor, count: int) -> dict[str, Tensor]:
    """Centre (G, d) and basis (G, d, count) of rows (G, n, d); the first component has spread 1."""
    sample = rows[:, :SAMPLE].double()
    centre = sample.mean(1)
    x = sample - centre[:, None]
    # on the CPU and in double precision: the same directions on every device
    spread, directions = torch.linalg.eigh((x.mT @ x / x.shape[1]).cpu())
    largest = directions[..., -count:].flip(-1)
    # an eigenvector's sign is arbitrary: its largest entry is made positive
    peak = largest.gather(-2, largest.abs().argmax(-2, keepdim=True))
    basis = largest * peak.sign() / spread[..., -1].clamp(min=1e-12).sqrt()[:, None, None]
    return {"few.centre": centre.to(rows), "few.basis": basis.to(rows)}


def few_numbers(rows: Tensor, centre: Tensor, basis: Tensor) -> Tensor:
    """(G, n, d) -> (G, n, count), rounded."""
    numbers: Tensor = ((rows - centre[:, None]) @ basis / STEP).round() * STEP
    return numbers
