"""Which of the owner's models decides."""

import pytest
import torch

from protoevfl.federation.owner import LabelOwner
from protoevfl.head import HeadSettings, probabilities, train_head
from protoevfl.methods.deciding import decide, decide_by_head
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.methods.unseen import UnseenSettings
from tests.methods.three_classes import D, M, rows

ALL = torch.ones(M, dtype=torch.bool)


def test_a_class_nobody_named_gets_a_last_column_where_there_is_evidence_enough() -> None:
    f, labels = rows([20, 20, 0], 5)
    query, truth = rows([150, 150, 100], 6)
    for bar, fires in ((0.0, True), (9.0, False)):
        settings = UnseenSettings(self_training=0.3, open_bar=bar)
        method = ProtoEVFL(unseen=settings, width=D)
        me = LabelOwner(labels, 2, (0, 1), key=7, open=True)
        me.memory |= {"embeddings": f, "prototypes": torch.zeros(M, 2, D)}
        p = decide(method, me, query, ALL)
        assert p.shape == (400, 3)
        assert bool(me.memory["open_fires"]) is fires
        assert (p[:, 2] > 0).any() == fires
        right = (p.argmax(1) == truth)[truth < (3 if fires else 2)]
        assert right.float().mean() > 0.9


@pytest.mark.parametrize("here", [(True, True), (True, False)])
def test_where_classes_were_weighed_equally_the_shared_rows_get_back_their_rates(
    here: tuple[bool, ...],
) -> None:
    """However unsure the heads are; the order of two classes' probabilities stays."""
    truth = torch.tensor([0] * 16 + [1] * 4)
    who = LabelOwner(truth, 2, (0, 1), 3)
    rows = torch.randn(2, 20, 6, generator=torch.Generator().manual_seed(1)) + truth[:, None]
    settings = HeadSettings(members=2, hidden=8, epochs=3, balanced=True)
    who.head = train_head(who.keys("head", 2), rows, truth, 2, settings)
    who.memory["embeddings"] = rows
    present = torch.tensor(here)
    p = decide_by_head(ProtoEVFL(head=settings), who, rows, present)
    assert torch.allclose(p.mean(0), torch.tensor([16.5, 4.5]) / 21, atol=1e-4)
    equal = probabilities(who.head, rows, present)
    assert torch.equal(p[:, 1].argsort(), equal[:, 1].argsort())
