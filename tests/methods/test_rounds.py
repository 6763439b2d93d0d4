"""The party's round: a prior that sums to one, every selection strategy trains, a withheld class
gets no plan."""

import pytest
import torch

from protoevfl.methods import rounds
from protoevfl.methods.settings import SELECTIONS, RoundSettings

G, N, Z, D = 2, 20, 4, 6
SOURCE = torch.Generator().manual_seed(0)
F_, MU = torch.randn(G, N, D, generator=SOURCE), torch.randn(G, Z, D, generator=SOURCE)
PRIOR = torch.full((G, Z), 1 / Z)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_every_selection_gives_a_loss_with_a_gradient(selection: str) -> None:
    if selection == "ot":
        pytest.importorskip("ot")
    f = F_.clone().requires_grad_()
    loss = rounds.plan_cost(f, MU, PRIOR, RoundSettings(selection=selection))
    assert loss.shape == (G,)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert f.grad is not None
    assert f.grad.abs().sum() > 0


def test_a_withheld_class_is_never_chosen() -> None:
    shown = torch.ones(G, Z)
    shown[:, 1] = 0
    assert (rounds.scores_of(F_, MU, shown, 0.2).argmax(-1) != 1).all()


def test_pseudo_labels_follow_the_prototypes() -> None:
    labels = torch.arange(N) % Z
    f = MU[:, labels] + 0.01 * torch.randn(G, N, D, generator=SOURCE)
    assert torch.equal(
        rounds.pseudo_labels(f, MU, torch.ones(G, Z), RoundSettings()), labels.expand(G, -1)
    )
