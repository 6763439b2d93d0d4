"""Parties that put their messages together."""

import torch

from protoevfl.privacy.attacks.collusion import collusion
from protoevfl.privacy.attacks.linear_system import linear_system
from protoevfl.privacy.view import know, together, views

from ..world import BARE, CLASSES, WIDTH, best, embeddings, transcript


def test_colluding_parties_solve_what_one_cannot() -> None:
    """400 rows: 24 equations a class are too few, 72 are more."""
    members = []
    for party in range(3):
        f, labels = embeddings(10, rows=400)
        f = (
            f
            @ torch.linalg.qr(
                torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(party))
            )[0]
        )
        f = f + torch.randn(f.shape, generator=torch.Generator().manual_seed(party))
        said = [(party, q, r) for _, q, r in transcript(f, labels, BARE, 1)]
        members.append(views(said, 400, CLASSES, active=-1)[party])
    none = know(labels, 0, CLASSES, 0)
    alone = best(linear_system(members[0], none), labels, none)
    joint = best(collusion(together(members), none), labels, none)
    assert joint > alone + 0.1
    assert collusion(members[0], none) == {}
