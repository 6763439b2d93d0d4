"""SS-VFL (Castiglia et al. 2022): self-supervision at each party (MoCo), then a head on the
concatenated outputs.

    stage 1   every party alone on all its rows: MoCo, no bytes
    stage 2   SS-VFL-I: extractors frozen, one upload of the aligned rows' embeddings, only the
              head is trained
              SS-VFL-C: everything is trained end to end, by the talk of split learning
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.head import HeadNet, HeadSettings, HeadTask, probabilities
from protoevfl.messages import Done, Embed, Embeddings, Message, Prepare, WarmUp, values
from protoevfl.method import PREDICTION, Asking, Exchanges, Report, Talk
from protoevfl.methods.ensemble import Ensemble, wide
from protoevfl.methods.moco import MoCoSettings, moco
from protoevfl.methods.split import SplitLearning
from protoevfl.models import embed, extractor


@dataclass(frozen=True)
class SSVFLC(SplitLearning):
    """Split learning that starts from self-supervised extractors."""

    name: ClassVar[str] = "ss_vfl_c"
    exchanges: ClassVar[Exchanges] = ((Prepare, Done), *SplitLearning.exchanges)
    lr: float = 3e-4
    moco: MoCoSettings = field(default_factory=MoCoSettings)

    def answer(self, cohort: Cohort, request: Message) -> Message:
        if not isinstance(request, Prepare):
            return super().answer(cohort, request)
        assert isinstance(cohort.net, Ensemble)
        moco(wide(cohort, cohort.net.net, self.models), self.moco)
        return Done()

    def train(self, owner: LabelOwner) -> Talk:
        yield {m: Prepare() for m in owner.parties}
        yield Report("self-supervision", 1, 1)
        yield from super().train(owner)


@dataclass(frozen=True)
class PlainHead(HeadSettings):
    """A head without adaptors and gate, which belong to Proto-EVFL."""

    gate: bool = False
    adaptor: bool = False


@dataclass(frozen=True)
class FrozenHead:
    """A head on frozen embeddings, M parties: what SS-VFL-I and One-shot VFL do last."""

    head: PlainHead = field(default_factory=PlainHead)

    def head_task(self, owner: LabelOwner, f: Tensor) -> HeadTask:
        """The head to train on f (M, N, d)."""
        keys = owner.keys("head", self.head.members)
        return HeadTask(keys, f, owner.labels, owner.classes, self.head)

    def blocks(self, owner: LabelOwner, replies: Mapping[int, Message]) -> Tensor:
        """The parties' embeddings (M, N, d), zero where a party is missing."""
        zeros = torch.zeros_like(values(next(iter(replies.values()))))
        return torch.stack(
            [values(replies[m]) if m in replies else zeros for m in owner.parties]
        ).to(owner.device)

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        """A missing party's block is zero."""
        replies = yield {m: Embed("query") for m in owner.parties if m in present}
        if not replies or not isinstance(owner.head, HeadNet):
            raise UserError(
                f"prediction needs a trained head and at least one of the parties {owner.parties}"
            )
        here = torch.tensor([m in replies for m in owner.parties], device=owner.device)
        return probabilities(owner.head, self.blocks(owner, replies), here)


@dataclass(frozen=True)
class SSVFLI(FrozenHead):
    """Self-supervision, one upload, a head. Nothing derived from labels leaves the owner."""

    name: ClassVar[str] = "ss_vfl_i"
    exchanges: ClassVar[Exchanges] = ((WarmUp, Embeddings), *PREDICTION)
    moco: MoCoSettings = field(default_factory=MoCoSettings)

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        return extractor(shape, keys)

    def answer(self, cohort: Cohort, request: Message) -> Message:
        match request:
            case WarmUp():
                moco(cohort, self.moco)
                return Embeddings(embed(cohort.net, cohort.rows.aligned))
            case Embed(rows=which):
                return Embeddings(embed(cohort.net, getattr(cohort.rows, which)))
        raise NotImplementedError(type(request).__name__)

    def train(self, owner: LabelOwner) -> Talk:
        replies = yield {m: WarmUp() for m in owner.parties}
        yield Report("self-supervision", 1, 1)
        owner.head = yield self.head_task(owner, self.blocks(owner, replies))
        yield Report("head", 1, 1)
