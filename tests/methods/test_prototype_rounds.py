"""The owner's side of the rounds: what counts as a collapse of embeddings and what is said of it."""

import pytest
import torch
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.federation.owner import build_owner
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.methods.prototype_rounds import class_means, guard


def guarded(spread: tuple[float, ...], peak: float, names: tuple[str, ...] = ()) -> Tensor:
    """What the guard says of 40 rows whose two directions have these spreads, for one party."""
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    f = (x * torch.tensor(spread))[None]
    owner = build_owner(torch.arange(40) % 2, 2, 1, 0)
    owner.names = names
    method = ProtoEVFL(width=2)
    mu, counts = class_means(method, owner, f)
    return guard(method, owner, f, mu, (counts > 0).float(), torch.tensor([peak]), [0])


def test_data_of_one_direction_is_no_collapse() -> None:
    assert 1 < float(guarded((1.0, 0.1), peak=1.4)) < 2


def test_a_collapse_is_told_by_the_party_s_name_with_a_way_out() -> None:
    with pytest.raises(UserError, match=r"embeddings of insurer collapse .* before 8.0.*one_way"):
        guarded((1.0, 0.01), peak=8.0, names=("insurer",))
    with pytest.raises(UserError, match="of insurer collapse"):
        guarded((1.0, float("nan")), peak=0.0, names=("insurer",))
