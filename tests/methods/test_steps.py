"""Parts of training steps."""

import torch

from protoevfl.methods.steps import calibrate, per_epoch, tracked
from protoevfl.models import BatchNorm, LeNet
from tests.tiny import keys


def test_batches_use_every_row_and_are_about_the_asked_size() -> None:
    for rows in range(1, 500, 7):
        parts = torch.arange(rows).tensor_split(per_epoch(rows, 64))
        assert sum(map(len, parts)) == rows
        assert rows < 64 or all(40 <= len(p) <= 96 for p in parts)


def test_calibrated_figures_are_those_of_the_rows() -> None:
    """In evaluation mode the network then gives what it gave in training mode on these rows."""
    net, rows = LeNet(keys(2), 2, 8), torch.rand(2, 300, 2, 8, 8)
    calibrate(net, rows)
    torch.testing.assert_close(
        net.eval()(rows), tracked(net.train(), False)(rows), atol=0.02, rtol=0.01
    )
    calibrate(net, rows)
    first = [m.get_buffer("mean").clone() for m in net.modules() if isinstance(m, BatchNorm)]
    calibrate(net, rows)
    again = [m.get_buffer("mean") for m in net.modules() if isinstance(m, BatchNorm)]
    torch.testing.assert_close(first, again)


def test_untracked_networks_keep_their_figures() -> None:
    net = LeNet(keys(1), 2, 8)
    before = net.bn1.get_buffer("mean").clone()
    tracked(net, False)(torch.rand(1, 9, 2, 8, 8))
    torch.testing.assert_close(net.bn1.get_buffer("mean"), before)
    tracked(net, True)(torch.rand(1, 9, 2, 8, 8))
    assert not torch.allclose(net.bn1.get_buffer("mean"), before)
