"""FedHSSL (He et al. 2022): hybrid self-supervision, then fine-tuning end to end.

    D(p, z) = -mean cos(p, stop(z))                    each pre-training epoch, at every party:
    1  cross-party, aligned rows:   D( predictor(z_c), projections of the other side )
    2  guided local, all own rows:  1/2 [D(p1,z2) + D(p2,z1)] + guidance/2 [D(p1,c2) + D(p2,c1)],  c: cross encoder
    3  tops, projectors and predictors of the local encoders are averaged over the parties

Then split learning on the mean of both encoders. An epoch is two exchanges: projections of the
aligned rows go up with the averaged parameters' arrival; the active party's go down, parameters
come up. Departs: projections are exchanged once per epoch, not once per batch (they are constants of
the loss either way), and momentum starts anew each epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from protoevfl.core import augment, losses
from protoevfl.core import random as rnd
from protoevfl.core.transport import unit
from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.fit import Loss, cosine, fit
from protoevfl.messages import Done, Guide, Merged, Message, Parameters, Project, Projections
from protoevfl.method import Exchanges, Report, Talk
from protoevfl.methods.ensemble import Ensemble, member_keys
from protoevfl.methods.hybrid import Branch, Pair, load_vector, vector
from protoevfl.methods.split import SplitLearning
from protoevfl.methods.steps import tracked
from protoevfl.methods.warmup import own_rows, two_views
from protoevfl.models import extractor, inputs


@dataclass(frozen=True)
class HybridSettings:
    """Pre-training."""

    epochs: int = 40  # exchanges of projections and parameters
    local_epochs: int = 1  # over the own rows between two exchanges
    batch: int = 256
    aligned_batch: int = 64
    lr: float = 0.05  # of SGD at batch 256, scaled with the batch; AdamW takes a fiftieth of it
    weight_decay: float = 3e-5
    optimizer: str = "sgd"  # with momentum .9, or adamw
    guidance: float = 0.5
    width: int = 128  # of projections
    strength: float = 0.6  # of image views
    corruption: float = 0.3  # share of table columns replaced
    views: str = "crop"  # crop: the source's; warm: those of Proto-EVFL's warm-up
    flip: bool = False  # mirror images, where a view has that symmetry

    def changes(self) -> augment.ImageViews:
        if self.views == "warm":
            return augment.DEFAULT_VIEWS
        return augment.ImageViews(contrast=0.4, blur=1.0, noise=0.0, erase=0, flip=self.flip)


class Net(nn.Module):
    """What a party holds: both branches while pre-training, `models` fine-tuned copies of both
    encoders after it."""

    def __init__(self, shape: tuple[int, ...], keys: Tensor, width: int, models: int) -> None:
        super().__init__()
        self.cross = Branch(shape, rnd.derive(keys, "cross"), width)
        self.local = Branch(shape, rnd.derive(keys, "local"), width)
        many = member_keys(keys, models)
        self.tuned = Ensemble(Pair(extractor(shape, many), extractor(shape, many)), models)

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        """Of the fine-tuned copies: what is embedded once pre-training is over."""
        return self.tuned.layers(x)

    @torch.no_grad()
    def spread(self) -> None:
        """Every fine-tuned copy starts from the pre-trained encoders."""
        pair, models = self.tuned.net, self.tuned.models
        assert isinstance(pair, Pair)
        for branch, target in ((self.cross, pair.cross), (self.local, pair.local)):
            for name, tensor in target.state_dict().items():
                tensor.copy_(branch.encoder.state_dict()[name].repeat_interleave(models, 0))


@dataclass(frozen=True)
class FedHSSL(SplitLearning):
    """Hybrid pre-training, then split learning."""

    name: ClassVar[str] = "fedhssl"
    exchanges: ClassVar[Exchanges] = (
        (Project, Projections),
        (Guide, Parameters),
        (Merged, Projections),
        (Merged, Done),
        *SplitLearning.exchanges,
    )
    lr: float = 3e-4
    pre: HybridSettings = field(default_factory=HybridSettings)

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        return Net(shape, keys, self.pre.width, self.models)

    def encoder(self, cohort: Cohort) -> nn.Module:
        return _net_of(cohort).tuned

    # ------------------------------------------------------------ party side

    def answer(self, cohort: Cohort, request: Message) -> Message:
        net = _net_of(cohort)
        match request:
            case Project():
                return Projections(project(cohort))
            case Guide(epoch=epoch, targets=targets):
                self.cross_party(cohort, targets, epoch)
                self.guided_local(cohort, epoch)
                return Parameters(vector(net.local.shareable()))
            case Merged(epoch=epoch, values=mean):
                load_vector(net.local.shareable(), mean)
                if epoch + 1 < self.pre.epochs:
                    return Projections(project(cohort))
                net.spread()
                return Done()
        return super().answer(cohort, request)

    def cross_party(self, cohort: Cohort, targets: Tensor, epoch: int) -> None:
        """Predicts the other side's projections (unit rows, or their mean) of the aligned rows."""
        branch, rows = _net_of(cohort).cross, cohort.rows.aligned
        keys = rnd.derive(cohort.keys, "cross-party", epoch)
        view = two_views(cohort, rows, keys, self.pre, self.pre.changes(), copies=1)

        def loss(index: Tensor, step: rnd.Counter) -> Tensor:
            p = branch.predictor(branch(view(index, step)))  # (G, B, width)
            goal = targets.gather(1, index[..., None].expand(-1, -1, targets.shape[-1]))
            return -(unit(p) * goal).sum(-1).mean(-1)

        tracked(branch, True)
        self.fit(loss, branch, keys, rows.shape[1], self.pre.aligned_batch, epoch, 1)

    def guided_local(self, cohort: Cohort, epoch: int) -> None:
        """SimSiam on all own rows, pulled towards the cross-party encoder."""
        net, rows = _net_of(cohort), own_rows(cohort)
        keys = rnd.derive(cohort.keys, "guided-local", epoch)
        views = two_views(cohort, rows, keys, self.pre, self.pre.changes())

        def loss(index: Tensor, step: rnd.Counter) -> Tensor:
            both = views(index, step)  # (G, 2B, ...)
            z1, z2 = (z := net.local(both)).chunk(2, 1)
            p1, p2 = net.local.predictor(z).chunk(2, 1)
            own = 0.5 * (losses.simsiam(p1, z2) + losses.simsiam(p2, z1))
            if not self.pre.guidance:
                return own
            with torch.no_grad():
                c1, c2 = net.cross(both).chunk(2, 1)
            return own + 0.5 * self.pre.guidance * (losses.simsiam(p1, c2) + losses.simsiam(p2, c1))

        tracked(net.cross, False)
        self.fit(loss, net.local, keys, rows.shape[1], self.pre.batch, epoch, self.pre.local_epochs)

    def fit(
        self,
        loss: Loss,
        branch: nn.Module,
        keys: Tensor,
        rows: int,
        batch: int,
        epoch: int,
        epochs: int,
    ) -> None:
        """Training between two exchanges; the rate falls from one to the next."""
        scale = batch / 256 if self.pre.optimizer == "sgd" else 0.02
        branch.train()
        fit(
            loss,
            branch.parameters(),
            keys,
            rows,
            epochs=epochs,
            batch=batch,
            decay=False,
            lr=self.pre.lr * scale * cosine(epoch, self.pre.epochs),
            weight_decay=self.pre.weight_decay,
            optimizer=self.pre.optimizer,
            purpose="pre-training",
        )

    # ------------------------------------------------------------ owner side

    def train(self, owner: LabelOwner) -> Talk:
        replies: Mapping[int, Message] = yield {m: Project() for m in owner.parties}
        for epoch in range(self.pre.epochs):
            z = {m: projections(reply) for m, reply in replies.items()}
            replies = yield {m: Guide(epoch, goal) for m, goal in goals(owner, z).items()}
            mean = torch.stack([parameters(reply) for reply in replies.values()]).mean(0)
            replies = yield {m: Merged(epoch, mean) for m in owner.parties}
            yield Report("hybrid self-supervision", epoch + 1, self.pre.epochs)
        yield from self.fine_tune(owner)


def _net_of(cohort: Cohort) -> Net:
    assert isinstance(cohort.net, Net)
    return cohort.net


@torch.no_grad()
def project(cohort: Cohort) -> Tensor:
    """Projections of the aligned rows (G, N_a, width), unit rows; normalised over these rows
    themselves."""
    out: Tensor = tracked(_net_of(cohort).cross, False)(inputs(cohort.rows.aligned))
    return unit(out)


def goals(owner: LabelOwner, z: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """What each party predicts: passive parties the active party's projections, the active party
    the others' mean.

    The mean over passive parties of D(p, z_m) is linear in the unit rows z_m, so their mean serves.
    """
    active, *passive = owner.parties
    mean = torch.stack([z[m] for m in passive]).mean(0)
    return {active: mean, **dict.fromkeys(passive, z[active])}


def projections(reply: Message) -> Tensor:
    if not isinstance(reply, Projections):
        raise UserError(f"expected projections, got {type(reply).__name__}")
    return reply.values


def parameters(reply: Message) -> Tensor:
    if not isinstance(reply, Parameters):
        raise UserError(f"expected parameters, got {type(reply).__name__}")
    return reply.values
