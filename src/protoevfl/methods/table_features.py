"""What a party sends of a table: its encoded columns and, for every number, which bin it lies in.

    number     z | bin as 0/1, divided by sqrt 2 | "above this edge" as 0/1 for every edge, divided by sqrt 2
    the rest   0/1 columns as they are (categories, missing)

all minus their mean over the party's own rows, so that a party that is missing counts as all zero.
A number with at most 16 values has an edge between any two of them that occur often enough, another
one has the edges of six equally full bins. A few hundred labelled rows under a linear model learn
more from these than from a self-supervised embedding (docs/notes/tables.md). Edges and means are
learnt from the party's own rows; nobody else sees them.
"""

import torch
from torch import Tensor

BINS = 6
FEW = 16  # values up to which each gets a bin of its own
EDGES = FEW - 1
ROOT = 2**-0.5
SAMPLE = 65_536  # rows that edges are learnt from


def learn_features(rows: Tensor, numbers: tuple[int, ...]) -> dict[str, Tensor]:
    """Edges (G, C, EDGES) of the C numbers, +inf where there are fewer, and means (G, width), from
    rows (G, n, D)."""
    sample = rows[:, :SAMPLE]
    edges = torch.full((len(rows), len(numbers), EDGES), torch.inf)
    for g, member in enumerate(sample[..., list(numbers)].cpu()):
        for c, column in enumerate(member.T):
            cuts = _edges(column)
            edges[g, c, : len(cuts)] = cuts
    edges = edges.to(rows.device)
    centre = _raw(sample, numbers, edges).mean(1)
    return {"edges": edges, "centre": centre}


def _edges(column: Tensor) -> Tensor:
    values, counts = torch.unique(column, return_counts=True)
    if len(values) <= FEW:
        often: Tensor = values[counts >= max(10, len(column) // 200)]
        return (often[1:] + often[:-1]) / 2
    quantiles = torch.arange(1, BINS, dtype=column.dtype) / BINS
    distinct: Tensor = torch.unique(torch.quantile(column, quantiles))
    return distinct


def table_features(rows: Tensor, numbers: tuple[int, ...], edges: Tensor, centre: Tensor) -> Tensor:
    """(G, n, D) encoded rows -> (G, n, D + C (2 EDGES + 1))."""
    return _raw(rows, numbers, edges) - centre[:, None]


def _raw(rows: Tensor, numbers: tuple[int, ...], edges: Tensor) -> Tensor:
    z = rows[..., list(numbers), None]  # (G, n, C, 1)
    above = (z > edges[:, None]).to(rows)  # (G, n, C, EDGES)
    last = above.new_zeros(*above.shape[:-1], 1)
    bins = torch.cat(
        [1 - above[..., :1], above[..., :-1] - above[..., 1:], above[..., -1:] + last], -1
    )
    binned = ROOT * torch.cat([bins, above], -1).flatten(2)  # (G, n, C (2 EDGES + 1))
    return torch.cat([rows, binned], -1)
