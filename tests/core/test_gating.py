"""Gates over the parties present: against a loop, missing parties, gradients, extreme values."""

import math

import pytest
import torch
from torch import Tensor

from protoevfl.core.gating import aggregate, gate


def blocks(*batch: int, parties: int = 3, rows: int = 4, width: int = 2) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(2)
    f = torch.randn(*batch, parties, rows, width, generator=g, dtype=torch.float64)
    return f, torch.randn(*batch, parties, width, generator=g, dtype=torch.float64)


def slow(f: Tensor, w: Tensor, present: Tensor) -> list[list[float]]:
    parties, rows, _ = f.shape
    out = []
    for n in range(rows):
        e = [math.exp(float(f[m, n] @ w[m])) if present[m, n] else 0.0 for m in range(parties)]
        total = sum(e) or 1.0
        out.append([parties * e[m] / total * float(x) for m in range(parties) for x in f[m, n]])
    return out


def test_head_input_equals_the_slow_loop() -> None:
    f, w = blocks()
    present = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0]]).bool()
    x = aggregate(f, gate(f, w, present))
    assert x.shape == (4, 6)
    for row, expected in zip(x.tolist(), slow(f, w, present)):
        assert row == pytest.approx(expected)
    full = aggregate(f, gate(f, w))
    for row, expected in zip(full.tolist(), slow(f, w, torch.ones(3, 4).bool())):
        assert row == pytest.approx(expected)


def test_gates_sum_to_one_over_those_present() -> None:
    f, w = blocks(5)
    present = torch.tensor([True, False, True])
    g = gate(f, w, present)
    torch.testing.assert_close(g.sum(-2), torch.ones(5, 4).double())
    assert g[:, 1].abs().max() == 0
    rest = gate(f[:, [0, 2]], w[:, [0, 2]])
    torch.testing.assert_close(g[:, [0, 2]], rest)


def test_no_party_gives_zero_not_nan() -> None:
    f, w = blocks()
    g = gate(f, w, torch.zeros(3, dtype=torch.bool))
    assert g.abs().max() == 0
    assert aggregate(f, g).abs().max() == 0


def test_what_a_missing_party_holds_reaches_neither_value_nor_gradient() -> None:
    f, w = blocks()
    f[1] = torch.nan
    f.requires_grad_()
    w.requires_grad_()
    x = aggregate(f, gate(f, w, torch.tensor([True, False, True])))
    assert torch.isfinite(x).all()
    assert x[:, 2:4].abs().max() == 0
    gf, gw = torch.autograd.grad(x.square().sum(), [f, w])
    assert torch.isfinite(gf).all()
    assert torch.isfinite(gw).all()


def test_batched_equals_looped_and_permutes_with_the_parties() -> None:
    f, w = blocks(2, 3)
    g = gate(f, w)
    torch.testing.assert_close(g[1, 2], gate(f[1, 2], w[1, 2]))
    torch.testing.assert_close(aggregate(f, g)[1, 2], aggregate(f[1, 2], g[1, 2]))
    order = [2, 0, 1]
    torch.testing.assert_close(gate(f[..., order, :, :], w[..., order, :]), g[..., order, :])


def test_a_zero_gate_vector_is_the_plain_concatenation() -> None:
    f, w = blocks()
    torch.testing.assert_close(aggregate(f, gate(f, 0 * w)), torch.cat(list(f), -1))


def test_gradient() -> None:
    f, w = blocks(2, rows=2)
    present = torch.tensor([True, True, False])
    inputs = [f.requires_grad_(), w.requires_grad_()]
    assert torch.autograd.gradcheck(lambda a, b: aggregate(a, gate(a, b, present)), inputs)


def test_huge_norms_and_a_single_party() -> None:
    f, w = (t.float() for t in blocks())
    g = gate(f * 1e18, w * 1e18, torch.tensor([True, True, False]))
    torch.testing.assert_close(g.sum(-2), torch.ones(4))
    f, w = blocks(parties=1)
    torch.testing.assert_close(aggregate(f, gate(f, w)), f[0])
