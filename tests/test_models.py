"""A member of a stacked model computes and learns as it would alone; shapes hold for all the image
sides we use."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protoevfl import models
from protoevfl.fit import adamw
from tests.tiny import keys

G, B = 3, 7
Make = Callable[[Tensor], models.Extractor]
MAKERS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "lenet": (lambda k: models.LeNet(k, 2, 8), (2, 8, 8)),
    "lenet plain": (lambda k: models.LeNet(k, 1, 14, norm=False), (1, 14, 14)),
    "skip": (lambda k: models._SkipMLP(k, 9), (9,)),
    "mlp5": (lambda k: models._MLP5(k, 9), (9,)),
    "mlp5 plain": (lambda k: models._MLP5(k, 9, norm=False), (9,)),
}
EVERY = pytest.mark.parametrize("name", MAKERS)


def batch(shape: tuple[int, ...], step: int = 0) -> Tensor:
    return torch.randn(G, B, *shape, generator=torch.Generator().manual_seed(step))


def pair(name: str) -> tuple[models.Extractor, list[models.Extractor], tuple[int, ...]]:
    make, shape = MAKERS[name]
    return make(keys(G)), [make(keys(G)[g : g + 1]) for g in range(G)], shape


@EVERY
def test_members_begin_equal_alone_and_stacked(name: str) -> None:
    together, alone, _ = pair(name)
    for key, tensor in together.state_dict().items():
        assert tensor.shape[0] == G
        assert torch.equal(tensor, torch.cat([net.state_dict()[key] for net in alone]))
    assert not torch.equal(next(alone[0].parameters()), next(alone[1].parameters()))


@EVERY
@pytest.mark.parametrize("training", [True, False])
def test_forward_equals_alone(name: str, training: bool) -> None:
    together, alone, shape = pair(name)
    x = batch(shape)
    found = together.train(training).layers(x)
    for g, net in enumerate(alone):
        for layer, value in net.train(training).layers(x[g : g + 1]).items():
            torch.testing.assert_close(found[layer][g : g + 1], value, atol=1e-5, rtol=1e-5)
    assert found["output"].shape == (G, B, together.width)


def distance(net: models.Extractor, x: Tensor) -> Tensor:
    """Squared distance to fixed targets (a norm alone would be constant behind batch-norm)."""
    target = torch.randn(1, B, net.width, generator=torch.Generator().manual_seed(9), dtype=x.dtype)
    return (net(x) - target).square().mean((1, 2)).sum()


@EVERY
def test_gradients_equal_alone(name: str) -> None:
    """In double precision, where rounding cannot hide a mistake."""
    together, alone, shape = pair(name)
    x = batch(shape).double()
    distance(together.double(), x).backward()
    for g, net in enumerate(alone):
        distance(net.double(), x[g : g + 1]).backward()
        for p, q in zip(together.parameters(), net.parameters(), strict=True):
            assert p.grad is not None
            assert q.grad is not None
            torch.testing.assert_close(p.grad[g : g + 1], q.grad, atol=1e-12, rtol=1e-9)


@EVERY
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-3)])
def test_members_stay_equal_over_several_optimiser_steps(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    """Adam divides by the gradient's size: in single precision rounding of a tiny one moves a
    weight by the rate."""
    together, alone, shape = pair(name)
    tools = [(net.to(dtype), adamw(net.parameters(), 1e-3, 1e-2)) for net in (together, *alone)]
    for step in range(4):
        x = batch(shape, step).to(dtype)
        for i, (net, tool) in enumerate(tools):
            tool.zero_grad()
            distance(net, x if i == 0 else x[i - 1 : i]).backward()
            tool.step()
    probe = batch(shape, 99).to(dtype)
    outputs = [
        net.eval()(probe if i == 0 else probe[i - 1 : i]) for i, (net, _) in enumerate(tools)
    ]
    torch.testing.assert_close(outputs[0], torch.cat(outputs[1:]), atol=tolerance, rtol=0)


@pytest.mark.parametrize("side", [4, 8, 14, 28, 32])
@pytest.mark.parametrize("channels", [1, 3])
def test_image_sides(side: int, channels: int) -> None:
    net = models.extractor((channels, side, side), keys(2))
    found = net.layers(torch.rand(2, 5, channels, side, side))
    assert found["output"].shape == (2, 5, 84)
    assert found["hidden"].shape == (2, 5, 120)
    assert found["conv"].shape == (2, 5, 16 * (side // 4) ** 2)


def test_convolution_equals_torch() -> None:
    conv = models._Conv(keys(2), "c", 3, 4)
    x = torch.randn(5, 2, 3, 6, 6)
    assert conv.bias is not None
    expected = [F.conv2d(x[:, g], conv.weight[g], conv.bias[g], padding=2) for g in range(2)]
    torch.testing.assert_close(conv(x.flatten(1, 2)), torch.cat(expected, 1), atol=1e-5, rtol=1e-5)


def test_batch_norm_equals_torch_and_tracks() -> None:
    ours, theirs = models.BatchNorm(keys(1), 4), nn.BatchNorm1d(4)
    for step in range(3):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step)) * 3 + 1
        torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.get_buffer("mean")[0], theirs.running_mean)
    torch.testing.assert_close(ours.get_buffer("var")[0], theirs.running_var)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_without_tracking_the_output_is_the_same_and_the_buffers_stay() -> None:
    net = models.LeNet(keys(2), 1, 8)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    x = torch.rand(2, 6, 1, 8, 8)
    norms = [m for m in net.modules() if isinstance(m, models.BatchNorm)]
    for norm in norms:
        norm.track = False
    quiet = net(x)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    for norm in norms:
        norm.track = True
    torch.testing.assert_close(net(x), quiet)
    assert not torch.equal(before["bn1.mean"], net.state_dict()["bn1.mean"])


def test_layers_before_batch_norm_have_no_bias() -> None:
    with_norm = dict(models.LeNet(keys(1), 1, 8).named_parameters())
    assert not [name for name in with_norm if name.endswith("bias") and not name.startswith("bn")]
    plain = dict(models.LeNet(keys(1), 1, 8, norm=False).named_parameters())
    assert {"conv1.bias", "conv2.bias", "fc1.bias", "fc2.bias"} <= set(plain)


def test_the_extractor_fits_the_rows() -> None:
    assert isinstance(models.extractor((3, 8, 8), keys(1)), models.LeNet)
    assert isinstance(models.extractor((7,), keys(1)), models._SkipMLP)
    assert isinstance(models.extractor((7,), keys(1), table="mlp5"), models._MLP5)


def test_bytes_become_fractions_and_floats_stay() -> None:
    assert models.inputs(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0.0, 1.0]
    assert models.inputs(torch.tensor([300.0])).item() == 300


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 9])
def test_embedding_in_batches_equals_at_once(rows: int) -> None:
    net = models.LeNet(keys(2), 1, 8)
    net(torch.rand(2, 6, 1, 8, 8))  # running figures that are not the initial ones
    x = torch.randint(0, 256, (2, rows, 1, 8, 8), dtype=torch.uint8)
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    found = models.embed(net, x, ("output", "hidden"), batch=4)
    assert found.shape == (2, rows, 84 + 120)
    assert net.training
    assert all(torch.equal(state[name], tensor) for name, tensor in net.state_dict().items())
    if rows:
        layers = net.eval().layers(models.inputs(x))
        torch.testing.assert_close(
            found, torch.cat([layers["output"], layers["hidden"]], -1), atol=1e-5, rtol=1e-5
        )
    assert not found.requires_grad
