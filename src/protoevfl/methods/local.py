"""Local: the active party alone, extractor and head on its own columns of the aligned labelled rows. Nothing crosses.

    min over E_0, head of  cross-entropy( head(E_0(x_0)), y )

The talk is split learning between the label owner and its own extractor, so the same mixup, ensemble and search serve.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from protoevfl.federation.owner import LabelOwner
from protoevfl.messages import Embed, values
from protoevfl.method import Asking, Exchanges
from protoevfl.methods.split import SplitLearning


@dataclass(frozen=True)
class Local(SplitLearning):
    """Split learning with one member, the active party."""

    name: ClassVar[str] = "local"
    exchanges: ClassVar[Exchanges] = ()

    def members(self, owner: LabelOwner) -> tuple[int, ...]:
        return owner.parties[:1]

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        """From the active party's columns; where they are missing, the rates of the labels, whatever others hold."""
        active = owner.parties[0]
        if active in present:
            return (yield from super().predict(owner, present))
        replies = yield {active: Embed("query")}  # for the number of rows alone
        return rates(owner).expand(len(values(replies[active])), -1)


def rates(owner: LabelOwner) -> Tensor:
    """Class rates (Z,) of the aligned rows."""
    return torch.bincount(owner.labels, minlength=owner.classes) / len(owner.labels)
