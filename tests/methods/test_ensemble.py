"""Several networks a party in one message."""

import torch

from protoevfl.messages import Embeddings
from protoevfl.methods.ensemble import Ensemble, blocks, flat, member_keys
from protoevfl.models import extractor
from tests.tiny import keys


def test_outputs_stand_side_by_side_and_each_is_its_networks_own() -> None:
    x, many = torch.randn(2, 7, 5), member_keys(keys(2), 3)
    z = Ensemble(extractor((5,), many), 3).eval()(x)  # (2, 7, 3*64)
    for g in range(2):
        for i in range(3):
            alone = extractor((5,), many[3 * g + i : 3 * g + i + 1]).eval()(x[g : g + 1])[0]
            torch.testing.assert_close(z[g, :, 64 * i : 64 * (i + 1)], alone)


def test_a_members_keys_do_not_depend_on_the_others() -> None:
    torch.testing.assert_close(member_keys(keys(3), 2)[2:4], member_keys(keys(3)[1:2], 2))


def test_blocks_and_flat_are_inverse() -> None:
    sent = {m: torch.randn(4, 6) for m in (0, 1, 5)}
    z = blocks({m: Embeddings(v) for m, v in sent.items()}, (0, 1, 5), 2)
    assert z.shape == (2, 3, 4, 3)
    torch.testing.assert_close(flat(z)[2], sent[5])
